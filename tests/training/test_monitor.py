"""The right metric chooses the best weights, in the right direction."""

from __future__ import annotations

import csv
import math

import pytest

from molgcn.errors import UserError
from molgcn.tasks.classification import Classification
from molgcn.tasks.regression import Regression
from molgcn.training.checkpoint_reader import load_checkpoint
from molgcn.training.monitor import Monitor
from molgcn.training.train import train

NUMBERS, CLASSES = Regression(("a", "b/c"), ("", "")), Classification(("a", "b/c"), ("", ""))


@pytest.mark.parametrize(
    ("key", "task", "mode", "value"),
    [
        ("val/loss", NUMBERS, "min", 9.0),
        ("val/mae", NUMBERS, "min", 2.0),
        ("val/r2/b/c", NUMBERS, "max", 5.0),
        ("val/spearman/a", NUMBERS, "max", 0.4),
        ("val/mape", NUMBERS, "min", 0.2),
        ("val/roc_auc", CLASSES, "max", 0.7),
        ("val/brier/a", CLASSES, "min", 0.3),
        ("val/mcc", CLASSES, "max", math.nan),
    ],
)
def test_values_and_directions(key, task, mode, value):
    metrics = {"val/loss": 9.0, "val/mae/a": 1.0, "val/mae/b/c": 3.0, "val/r2/b/c": 5.0, "val/roc_auc/a": math.nan}
    metrics |= {"val/roc_auc/b/c": 0.7, "val/brier/a": 0.3, "val/mcc/a": math.nan, "val/mcc/b/c": math.nan}
    metrics |= {"val/spearman/a": 0.4, "val/mape/a": 0.1, "val/mape/b/c": 0.3}
    monitor = Monitor.of(key, task)
    assert (monitor.key, monitor.mode) == (key, mode)
    assert monitor.value(metrics) == pytest.approx(value, nan_ok=True)
    better, worse = (1.0, 2.0) if mode == "min" else (2.0, 1.0)
    assert monitor.is_better(better, worse) and not monitor.is_better(worse, better)
    assert monitor.is_better(worse, None) and not monitor.is_better(math.nan, None) and not monitor.is_better(worse, worse)


@pytest.mark.parametrize("task", [NUMBERS, CLASSES])
def test_every_metric_can_be_monitored_and_is_then_computed(task):
    for metric in task.metrics:
        for key in (f"val/{metric}", f"val/{metric}/b/c"):
            monitor = Monitor.of(key, task)
            assert monitor.mode == ("max" if metric in task.rising else "min")
            assert {*task.logged, metric} == {*monitor.measured}


@pytest.mark.parametrize("key", ["loss", "val/roc_auc", "val/mae/c", "train/mae", "val/mae/"])
def test_an_unknown_one_is_refused(key):
    with pytest.raises(UserError, match=r"training\.monitor=.* task=regression\. Expected one of val/loss, val/mae.*val/mae/a"):
        Monitor.of(key, NUMBERS)


@pytest.mark.parametrize(("metric", "best"), [("mae", min), ("r2", max), ("spearman", max)])
def test_a_run_keeps_the_best_and_stops_by_it(metric, best, tmp_path, small_config):
    config = small_config(
        dataset={"targets": ["logp", "tpsa"]},
        training={"monitor": f"val/{metric}"},
        scheduler={"name": "plateau", "patience": 0},
        callbacks={"early_stopping_patience": 2},
        optimizer={"lr": 0.1},
        trainer={"max_epochs": 8},
    )
    result = train(config, tmp_path)
    with open(tmp_path / "metrics.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["val/loss"]]
    values = [float(row[f"val/{metric}"]) for row in rows]
    for value, row in zip(values, rows, strict=True):
        assert value == pytest.approx((float(row[f"val/{metric}/logp"]) + float(row[f"val/{metric}/tpsa"])) / 2, rel=1e-6)
    assert [key for key in rows[0] if key.startswith("val/") and key.endswith("/tpsa")] == [
        f"val/{one}/tpsa" for one in ("mae", "rmse", "r2", *({metric} - {"mae", "r2"}))
    ]  # what nobody looks at is not computed
    assert values.index(best(values)) == result.best_epoch - 1
    assert result.best_value == pytest.approx(best(values), rel=1e-6)
    assert (result.monitor, result.maximize) == (f"val/{metric}", best is max)
    assert result.best_loss == pytest.approx(float(rows[result.best_epoch - 1]["val/loss"]), rel=1e-6)
    assert load_checkpoint(tmp_path / "checkpoints" / "best.ckpt")["epoch"] == result.best_epoch - 1
    assert result.epochs == min(8, result.best_epoch + 2)
