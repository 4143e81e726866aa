import contextlib
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from molgcn.config.run import Config, ModelConfig, OptimizerConfig, parse
from molgcn.config.training import TrainingConfig
from molgcn.data.config import DatasetConfig
from molgcn.errors import UserError
from molgcn.evaluation.config import EvaluateConfig, EvaluationDataConfig
from molgcn.predict import PredictConfig


def test_plain_values_go_around():
    config = parse(Config, {"dataset": {"name": "builtin"}, "optimizer": {"lr": "1e-2", "betas": [0.8, 0.9]}})
    assert config.optimizer == OptimizerConfig(lr=0.01, betas=(0.8, 0.9))
    assert parse(Config, config.to_dict()) == config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"model": {"num_layers": 2.5}}, "model.num_layers=2.5"),
        ({"model": {"norm": "x"}}, "model.norm='x'"),
        ({"model": {"encodings": {"rwse": "many"}}}, "model.encodings.rwse='many'"),
        ({"model": {"encodings": {"rsws": 3}}}, r"model.encodings.rsws is not a known key\. Did you mean 'rwse'\?"),
        ({"training": {"captured": "maybe"}}, "training.captured='maybe'"),
        ({"optimiser": {}}, "optimiser is not a known key"),
        ({"experiment": {"seed": 1}}, "A preset in experiment/ begins with the line `# @package _global_`"),
        ({"model": {"layers": 3}}, "model.layers is not a known key"),
        ({"seed": -1}, "seed=-1"),
        ({"dataset": {"name": "qm10"}}, "qm10"),
        ({"loader": {"num_workers": -1}}, "loader.num_workers=-1"),
        ({"optimizer": {"betas": [2, 0.5]}}, r"optimizer.betas=\[2.0, 0.5\] is not valid: expected two numbers"),
        ({"optimizer": {"eps": -1}}, "optimizer.eps=-1"),
        ({"optimizer": {"lr": float("inf")}}, "optimizer.lr=inf is not valid: expected a finite number"),
        ({"dataset": {"targets": [True]}}, r"\"dataset.targets=\['True'\]\""),
        ({"optimizer": {"momentum": -0.5}}, "optimizer.momentum=-0.5"),
        ({"scheduler": {"min_lr": -1}}, "scheduler.min_lr=-1"),
        ({"scheduler": {"min_lr": 0.1}}, "scheduler.min_lr=0.1 is not valid: expected at most optimizer.lr=0.001"),
        ({"scheduler": {"start_lr": 0.1, "warmup_epochs": 1}}, "scheduler.start_lr=0.1 is not valid: expected at most optimizer.lr=0.001"),
        ({"scheduler": {"patience": -1}}, "scheduler.patience=-1"),
        ({"callbacks": {"early_stopping_patience": -1}}, "callbacks.early_stopping_patience=-1"),
        ({"callbacks": {"early_stopping_min_delta": -0.1}}, "callbacks.early_stopping_min_delta=-0.1"),
        ({"backend": {"strategy": "warp"}}, r"backend.strategy='warp' is not valid\. There are: auto, tile, layer"),
        ({"task": "clasification"}, r"task='clasification' is not valid\. Did you mean 'classification'\? There are: auto, regression"),
        ({"dataset": {"batch_size": 0}}, "dataset.batch_size=0 is not valid: expected at least 1"),
        ({"dataset": {"num_workers": -1}}, "dataset.num_workers=-1 is not valid"),
        ({"dataset": {"split_fractions": [0.5, 0.6, 0.1]}}, r"dataset.split_fractions=\[0.5, 0.6, 0.1\] sum to 1.2"),
        ({"callbacks": {"stop_below_lr": 0}}, "callbacks.stop_below_lr=0"),
    ],
)
def test_messages_name_key_and_value(values, message):
    with pytest.raises(UserError, match=message):
        parse(Config, {"dataset": {}, **values})


@pytest.mark.parametrize("cls", [DatasetConfig, PredictConfig, EvaluationDataConfig])
def test_smiles_are_in_one_column_or_several(cls):
    for columns, names in ((["SMILES"], "SMILES"), (1, "1"), (["solute", 2], ["solute", "2"])):
        assert parse(cls, {"smiles": columns} | ({"name": "csv"} if cls is DatasetConfig else {})).smiles == names


@pytest.mark.parametrize(("given", "names"), [("logp", ["logp"]), ([1, "a", 2.5], ["1", "a", "2.5"]), (0, ["0"]), (None, None)])
def test_columns_may_be_one_and_their_names_numbers(given, names):
    """Hydra passes dataset.targets=logp as text and dataset.targets=[1] as a number, also for a header 1."""
    for config in (parse(Config, {"dataset": {"targets": given, "smiles": 3}}).dataset, DatasetConfig(targets=given, smiles="3")):
        assert (config.targets, config.smiles) == (names, "3")
    config = parse(EvaluateConfig, {"dataset": {"targets": given, "smiles": 3}}).dataset
    assert (config.targets, config.smiles) == (names, "3")


@given(st.sampled_from([one.name for one in fields(TrainingConfig)]), st.one_of(st.text(max_size=5), st.floats(), st.booleans(), st.none()))
def test_any_value_gives_a_config_or_a_user_error(key, value):
    with contextlib.suppress(UserError):
        assert isinstance(parse(TrainingConfig, {key: value}, "training"), TrainingConfig)


def test_model_keys_are_those_that_stay():
    stay = "hidden_channels num_layers residual norm dropout pool add_self_loops embed last_activation head_layers"
    assert set(stay.split()) < {one.name for one in fields(ModelConfig)}
