"""sweep.params accepts right values, refuses wrong ones and becomes a search space."""

import optuna
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from molgcn.config.overrides import parse_override
from molgcn.errors import UserError
from molgcn.search.search_space import as_overrides, first_values, read_space, suggest

SPACE = {
    "optimizer": {"lr": {"low": 1e-4, "high": 1e-2, "log": True}},
    "model": {"num_layers": {"low": 2, "high": 8, "step": 2}, "norm": ["batch", None], "dropout": {"low": 0, "high": 0.5}},
    "scheduler": ["cosine", "plateau"],
    "seed": None,
}


def test_leaves_by_dotted_key():
    space = read_space(SPACE)
    assert list(space) == ["optimizer.lr", "model.num_layers", "model.norm", "model.dropout", "scheduler"]
    assert first_values(space) == {
        "optimizer.lr": 1e-4,
        "model.num_layers": 2,
        "model.norm": "batch",
        "model.dropout": 0,
        "scheduler": "cosine",
    }


def test_suggestions_lie_in_the_space():
    study, space, seen = optuna.create_study(sampler=optuna.samplers.RandomSampler(0)), read_space(SPACE), []
    for _ in range(60):
        seen.append(suggest(study.ask(), space))
    assert {values["model.num_layers"] for values in seen} == {2, 4, 6, 8}
    assert {values["model.norm"] for values in seen} == {"batch", None}
    rates = [values["optimizer.lr"] for values in seen]
    assert all(1e-4 <= rate <= 1e-2 for rate in rates)
    assert 15 < sum(rate < 1e-3 for rate in rates) < 45  # logarithmic
    assert any(0 < values["model.dropout"] < 0.5 for values in seen)


@pytest.mark.parametrize(
    "entry",
    [
        {"low": 1, "high": 1},
        {"low": 1, "high": 0.5},
        {"low": 0.0, "high": 1.0, "log": True},
        {"low": 1, "high": 8, "log": True, "step": 2},
        {"low": 1, "high": 8, "step": 0},
        {"low": "a", "high": "b"},
        {"low": True, "high": 3},
        {"low": 1},
        {"low": 1, "high": 2, "size": 3},
        [],
        [[1, 2]],
        3,
    ],
    ids=str,
)
def test_wrong_entries_are_named(entry):
    with pytest.raises(UserError, match=r"sweep\.params\.model\.width="):
        read_space({"model": {"width": entry}})


def test_what_the_command_line_fixes_is_left_out():
    assert list(read_space(SPACE, ["model.norm", "optimizer.lr", "trainer.max_epochs"])) == [
        "model.num_layers",
        "model.dropout",
        "scheduler",
    ]


def test_an_empty_space_is_refused():
    with pytest.raises(UserError, match=r"sweep\.params is empty"):
        read_space({"optimizer": {"lr": [1.0, 2.0]}}, ["optimizer.lr"])
    with pytest.raises(UserError, match=r"sweep\.params is empty"):
        read_space({"model": {}, "optimizer": {"lr": None}})


@given(st.one_of(st.none(), st.booleans(), st.integers(-(10**6), 10**6), st.floats(1e-9, 1e9), st.text(max_size=8)))
@example("${")
@example("a\\\\${b}'")
def test_overrides_say_the_same_in_hydras_grammar(value):
    (override,) = as_overrides({"a.b": value})
    read = OmegaConf.create({"b": parse_override(override).value()}).b
    if isinstance(value, float):
        assert float(read) == pytest.approx(value, rel=1e-5)
    elif isinstance(value, str):
        assert str(read) == value
    else:
        assert read == value
