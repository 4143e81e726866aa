import contextlib
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from molgcn.config import Config, ModelConfig, OptimizerConfig, TrainingConfig, parse
from molgcn.errors import UserError


def test_plain_values_go_around():
    config = parse(Config, {"dataset": {"name": "builtin"}, "optimizer": {"lr": "1e-2", "betas": [0.8, 0.9]}})
    assert config.optimizer == OptimizerConfig(lr=0.01, betas=(0.8, 0.9))
    assert parse(Config, config.to_dict()) == config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": {"num_layers": 2.5}}, "model.num_layers=2.5"),
        ({"model": {"norm": "x"}}, "model.norm='x'"),
        ({"training": {"captured": "maybe"}}, "training.captured='maybe'"),
        ({"optimiser": {}}, "optimiser is not a known key"),
        ({"model": {"layers": 3}}, "model.layers is not a known key"),
        ({"seed": -1}, "seed=-1"),
        ({"dataset": {"name": "qm10"}}, "qm10"),
    ],
)
def test_messages_name_key_and_value(values, message):
    with pytest.raises(UserError, match=message):
        parse(Config, {"dataset": {}, **values})


@given(st.sampled_from([one.name for one in fields(TrainingConfig)]), st.one_of(st.text(max_size=5), st.floats(), st.booleans(), st.none()))
def test_any_value_gives_a_config_or_a_user_error(key, value):
    with contextlib.suppress(UserError):
        assert isinstance(parse(TrainingConfig, {key: value}, "training"), TrainingConfig)


def test_model_keys_are_those_that_stay():
    stay = "hidden_channels num_layers residual norm dropout pool add_self_loops embed last_activation head_layers"
    assert set(stay.split()) < {one.name for one in fields(ModelConfig)}
