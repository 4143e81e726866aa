"""Trials report after every validation, and end early where the others were better."""

import math

import optuna
import pytest
from lightning import Trainer
from studies import study_in, table

from molgcn.errors import UserError
from molgcn.search.pruning import Pruning
from molgcn.search.search import SearchConfig, search
from molgcn.tasks.classes import Classification
from molgcn.tasks.regression import Regression
from molgcn.training.monitor import Monitor

pytestmark = pytest.mark.usefixtures("blank_figures")
LOSS = Monitor.of("val/loss", Regression(("logp",), ("",)))


def test_worse_than_the_median_is_pruned(tmp_path, compose):
    """Two good trials are enqueued by hand, then one whose rate is far too small."""
    space = {"optimizer": {"lr": {"low": 1e-7, "high": 0.1, "log": True}}}
    settings = SearchConfig(n_trials=3, params=space, pruning_startup_trials=2, pruning_warmup=1)
    longer = lambda overrides: compose(["trainer.max_epochs=4", *overrides])  # noqa: E731
    search(SearchConfig(n_trials=1, params=space), longer, tmp_path)
    study = study_in(tmp_path)
    first = study.trials[0].intermediate_values
    assert list(first) == list(range(4))
    for rate in (0.01, 1e-7):
        study.enqueue_trial({"optimizer.lr": rate})
    search(settings, longer, tmp_path)
    last = study_in(tmp_path).trials[-1]
    assert last.params == {"optimizer.lr": 1e-7}
    assert last.state.name == "PRUNED"
    assert len(last.intermediate_values) < 4
    assert (tmp_path / "2" / "result.json").exists()
    assert "pruned" in {row["state"] for row in table(tmp_path)}


def test_the_callback_reports_and_stops():
    trial = optuna.create_study().ask()
    callback = Pruning(trial, LOSS)
    trainer = Trainer(logger=False, enable_checkpointing=False, accelerator="cpu")
    trainer.callback_metrics["val/loss"] = 0.7
    callback.on_validation_end(trainer, None)
    trainer.callback_metrics["val/loss"] = 0.9
    callback.on_validation_end(trainer, None)
    assert callback.best == 0.7
    assert trial.storage.get_trial(trial._trial_id).intermediate_values == {0: 0.7, 1: 0.9}
    trainer.callback_metrics["val/loss"] = math.nan
    with pytest.raises(UserError, match="diverged"):
        callback.on_validation_end(trainer, None)


def test_of_several_trainings_the_mean_counts():
    study = optuna.create_study(pruner=optuna.pruners.ThresholdPruner(upper=1.0))
    trial = study.ask()
    callback = Pruning(trial, LOSS)
    trainer = Trainer(logger=False, enable_checkpointing=False, accelerator="cpu")
    for losses in ([0.7, 0.5, 0.6], [0.9, 1.7]):
        callback.on_fit_start(trainer, None)
        for loss in losses:
            trainer.callback_metrics["val/loss"] = loss
            callback.on_validation_end(trainer, None)
    assert callback.best == pytest.approx((0.5 + 0.9) / 2)
    reported = trial.storage.get_trial(trial._trial_id).intermediate_values
    assert list(reported.values()) == pytest.approx([0.7, 0.5, 0.6, (0.5 + 0.9) / 2, (0.5 + 1.7) / 2])
    assert callback.pruned and trainer.should_stop
    with pytest.raises(optuna.TrialPruned):  # the next training does not start
        callback.on_fit_start(trainer, None)


def test_a_validation_that_does_not_define_the_objective_does_not_count():
    """The first training of the trial has a validation part of one class."""
    trial = optuna.create_study(direction="maximize").ask()
    callback = Pruning(trial, Monitor.of("val/roc_auc", Classification(("toxic",), ("",))))
    trainer = Trainer(logger=False, enable_checkpointing=False, accelerator="cpu")
    for values in ([math.nan, math.nan], [0.7, math.nan, 0.6]):
        callback.on_fit_start(trainer, None)
        for value in values:
            trainer.callback_metrics.update({"val/loss": 0.5, "val/roc_auc": value})
            callback.on_validation_end(trainer, None)
    assert callback.best == 0.7
    assert trial.storage.get_trial(trial._trial_id).intermediate_values == {0: 0.7, 1: 0.6}
