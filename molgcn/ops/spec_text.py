"""The text in which an operator takes the spec of a network: a heading with its version, then every option once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

import torch

Spec = TypeVar("Spec")

_VALUES: Mapping[str, Any] = {"None": None, "True": True, "False": False}


def to_text(spec: Any, heading: str) -> str:
    """Return the text of a spec, a frozen dataclass of numbers, names, booleans and None: "heading option=value option=value ...".

    Args:
        spec: the spec.
        heading: the kind of spec and the version of its text.
    """
    return _text(spec, heading) if torch.compiler.is_compiling() else _remembered_text(spec, heading)


def from_text(kind: Callable[..., Spec], heading: str, text: str) -> Spec:
    """Return the spec of :func:`to_text`, one object for each text.

    Args:
        kind: the dataclass, whose annotations are strings.
        heading: the heading that the text must have.
        text: the text.

    Raises:
        ValueError: for a text with another heading, or one that does not name every option once and in order.
    """
    return _spec(kind, heading, text)


def _text(spec: Any, heading: str) -> str:
    return " ".join([heading, *[f"{field.name}={getattr(spec, field.name)}" for field in fields(spec)]])


_remembered_text = cache(_text)  # which torch.compile warns of, and goes around


@cache
def _spec(kind: Any, heading: str, text: str) -> Any:
    kinds = {field.name: str(field.type) for field in fields(kind)}
    first, *words = text.split(" ")
    options = [word.partition("=") for word in words]
    if first != heading or [name for name, _, _ in options] != list(kinds):
        raise ValueError(f"a network's spec starts with {heading!r} and names {', '.join(kinds)}, got {text!r}")
    return kind(**{name: _value(value, kinds[name]) for name, _, value in options})


def _value(text: str, kind: str) -> Any:
    if text in _VALUES:
        return _VALUES[text]
    return int(text) if kind.startswith("int") else float(text) if kind == "float" else text
