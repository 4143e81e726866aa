"""Runs on a set without validation or test work from training to evaluation."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from run_cases import log_of, train_and_copy

from molgcn.errors import UserError
from molgcn.evaluate import EvaluateConfig, evaluate
from molgcn.training.checkpoint_file import load_checkpoint
from molgcn.training.restore import find_checkpoint, load_module
from molgcn.training.train import train

pytestmark = pytest.mark.usefixtures("empty_figures")

CASES = [
    ([0.9, 0.1, 0], ["train", "val"]),
    pytest.param([0.9, 0, 0.1], ["train", "test"], marks=pytest.mark.slow),
    ([1, 0, 0], ["train"]),
]


@pytest.mark.parametrize(("fractions", "parts"), CASES)
def test_a_run_has_what_its_parts_give(fractions, parts, tmp_path, small_config, capsys):
    folder = tmp_path / "run"
    result = train(small_config(training={"report": True}, dataset={"split_fractions": fractions}), folder)
    result.save([])
    result.print()
    table = capsys.readouterr().out
    assert {key.partition("/")[0] for key in result.metrics} == set(parts)
    assert all((f"{part} MAE" in table) == (part in parts) for part in ("train", "val", "test"))
    assert (folder / "checkpoints" / "best.ckpt").exists() == ("val" in parts) == (result.best_epoch is not None)
    predictions = pd.read_csv(folder / f"predictions_{parts[-1]}.csv")
    assert np.abs(predictions["logp"] - predictions["logp predicted"]).mean() == pytest.approx(
        result.metrics[f"{parts[-1]}/mae/logp"], rel=1e-4
    )
    assert sorted(predictions["row"]) == sorted(json.loads((folder / "splits.json").read_text())[parts[-1]])
    assert [path.name for path in folder.glob("predictions_*")] == [f"predictions_{parts[-1]}.csv"]
    page = (folder / "report.html").read_text()
    assert ("validation" in page.lower()) == ("val" in parts)
    evaluation = evaluate(EvaluateConfig(ckpt=str(folder)))
    assert evaluation.metrics == pytest.approx(result.metrics, rel=1e-5)


def test_a_part_that_is_not_there_cannot_be_evaluated(tmp_path, small_config):
    train(small_config(dataset={"split_fractions": [0.9, 0.1, 0]}), tmp_path)
    with pytest.raises(UserError, match=r"split=test, but .* has no molecule there. Use train or val, or split=all"):
        evaluate(EvaluateConfig(ckpt=str(tmp_path), split="test"))


def test_without_validation_the_last_weights_are_the_model(tmp_path, small_config):
    result = train(small_config(dataset={"split_fractions": [0.9, 0, 0.1]}, trainer={"max_epochs": 3}), tmp_path)
    assert result.epochs == 3 and result.best_loss is None
    module = load_module(find_checkpoint(tmp_path))
    last = load_checkpoint(tmp_path / "checkpoints" / "last.ckpt")["state_dict"]
    assert all(torch.equal(value, last[name]) for name, value in module.state_dict().items())


def test_a_batch_is_learned_by_heart_without_validation(tmp_path, small_config, recwarn):
    """Lightning validates with `overfit_batches` whatever `limit_val_batches` says."""
    result = train(small_config(dataset={"split_fractions": [1, 0, 0]}, trainer={"overfit_batches": 1}), tmp_path)
    assert result.epochs == 2 and result.best_epoch is None
    assert not any("across ranks is zero" in str(warning.message) for warning in recwarn)


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"scheduler": {"name": "plateau"}}, "scheduler=plateau"),
        ({"callbacks": {"early_stopping_patience": 3}}, "early_stopping_patience"),
        ({"training": {"monitor": "val/mae"}}, r"training\.monitor=val/mae"),
    ],
    ids=str,
)
def test_what_waits_for_validations_needs_the_part(changes, key, tmp_path, small_config):
    with pytest.raises(UserError, match=rf"{key} looks at validations, but the split has no validation part"):
        train(small_config(**changes, dataset={"split_fractions": [0.9, 0, 0.1]}), tmp_path)
    assert not (tmp_path / "config.yaml").exists()


@pytest.mark.parametrize("changes", [{"dataset": {"split_fractions": [1, 0, 0]}}, {"trainer": {"limit_val_batches": 0}}], ids=str)
def test_a_patience_of_auto_is_none_without_validations(changes, tmp_path, small_config):
    callbacks = {"early_stopping_patience": "auto", "early_stopping_min_delta": 100.0}
    changes = {**changes, "trainer": {"max_epochs": 22, **changes.get("trainer", {})}}
    assert train(small_config(**changes, callbacks=callbacks), tmp_path).epochs == 22


def test_a_run_without_validation_goes_on_bit_for_bit(tmp_path, small_config):
    config = small_config(dataset={"split_fractions": [1, 0, 0]}, trainer={"max_epochs": 3}, training={"checkpoint_seconds": 0})
    _, copies = train_and_copy(config, tmp_path / "whole")
    killed = copies[len(copies) // 2]
    train(replace(config, resume=str(killed)), killed)
    one, other = (load_checkpoint(folder / "checkpoints" / "last.ckpt") for folder in (tmp_path / "whole", killed))
    assert one["global_step"] == other["global_step"] > 0
    assert all(torch.equal(value, other["state_dict"][name]) for name, value in one["state_dict"].items())
    assert log_of(tmp_path / "whole") == log_of(killed)


@pytest.mark.slow
def test_a_sweep_shows_runs_without_validation_and_a_search_refuses_them(tmp_path, cli):
    data = ["dataset.subset=60", "dataset.split_fractions=[0.8,0,0.2]", "dataset.features=zinc"]
    small = [*data, "model.hidden_channels=8", "model.num_layers=2", "trainer.max_epochs=1", "logger=csv", "training.report=false"]
    code, output, _ = cli("--multirun", "seed=0,1", *small)
    assert code == 0
    assert all(re.search(rf"seed={seed} +│ +- │ +\d\.\d+ │", output) for seed in (0, 1))  # no loss of validation, but a test error
    code, _, error = cli("sweep=optuna", "sweep.n_trials=1", *small)
    assert code == 2 and "sweep.objective=val/loss is a metric of the validation part, and the split has none" in error
