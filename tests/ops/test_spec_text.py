"""The text of a spec."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from molgcn.ops.spec_text import from_text, to_text


@dataclass(frozen=True)
class Spec:
    name: str
    width: int
    depth: int | None = None
    rate: float = 0.5
    on: bool = False


@pytest.mark.parametrize("spec", [Spec("a", 3), Spec("b", 1, 7, 1e-5, True)], ids=str)
def test_a_text_is_its_spec(spec):
    text = to_text(spec, "spec/1")
    assert text.startswith("spec/1 name=")
    assert from_text(Spec, "spec/1", text) == spec
    assert from_text(Spec, "spec/1", text) is from_text(Spec, "spec/1", text)


@pytest.mark.parametrize(
    "text",
    [
        "spec/2 name=a width=3 depth=None rate=0.5 on=False",
        "spec/1 width=3 name=a depth=None rate=0.5 on=False",
        "spec/1 name=a width=3 depth=None rate=0.5",
        "spec/1 name=a width=3 depth=None rate=0.5 on=False on=True",
        "",
    ],
)
def test_another_text_is_refused(text):
    with pytest.raises(ValueError, match=r"starts with 'spec/1' and names name, width, depth, rate, on, got"):
        from_text(Spec, "spec/1", text)
