"""The right metric chooses the best weights, in the right direction."""

from __future__ import annotations

import csv
import math

import pytest

from molgcn.errors import UserError
from molgcn.tasks.classes import Classification
from molgcn.tasks.regression import Regression
from molgcn.training.checkpoint_file import load_checkpoint
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


@pytest.mark.parametrize("key", ["val/bounded_rmse", "val/bounded_rmse/a"])
def test_one_that_must_be_chosen_first_says_how(key):
    with pytest.raises(UserError, match=rf"monitor={key} is a metric .* Add training\.metrics=\[mae,.*bounded_rmse\]\."):
        Monitor.of(key, NUMBERS)
    assert Monitor.of(key, NUMBERS.showing(("bounded_rmse",))).key == key


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


def of_two_targets(folder, small_config, targets, validated):
    """Return a configuration on a file in whose validation part the target `never` has one class, and `toxic` has those of `validated`."""
    lines = [f"{'C' * (n % 12 + 1)}{end},{n % 2},{n % 2},train" for n in range(36) for end in ("F", "O")]
    lines += [f"{'C' * (n % 12 + 1)}N,{validated[n % 2]},0,val" for n in range(12)]
    (folder / "x.csv").write_text("\n".join(["smiles,toxic,never,part", *lines]) + "\n")
    dataset = {"name": "csv", "path": str(folder / "x.csv"), "targets": targets, "subset": None, "split": "column", "split_column": "part"}
    return small_config(
        dataset=dataset,
        training={"monitor": "val/roc_auc"},
        callbacks={"early_stopping_patience": 1},
        scheduler={"name": "plateau"},
        trainer={"max_epochs": 5},
        task="classification",
    )


def test_the_mean_leaves_out_a_target_of_one_class(tmp_path, small_config):
    config = of_two_targets(tmp_path, small_config, ["toxic", "never"], (0, 1))
    both = train(config, tmp_path / "both")
    with open(tmp_path / "both" / "metrics.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["val/loss"]]
    assert all(row["val/roc_auc"] == row["val/roc_auc/toxic"] and row["val/roc_auc/never"] == "nan" for row in rows)
    assert both.best_value == pytest.approx(max(float(row["val/roc_auc"]) for row in rows), rel=1e-6)
    assert both.epochs == min(5, both.best_epoch + 1)


def test_a_value_that_no_validation_defines_neither_stops_nor_chooses(tmp_path, small_config, caplog, capsys):
    result = train(of_two_targets(tmp_path, small_config, ["toxic"], (0, 0)), tmp_path / "run")
    assert (result.epochs, result.best_epoch, result.best_value) == (5, None, None)
    assert not (tmp_path / "run" / "checkpoints" / "best.ckpt").exists()
    assert caplog.text.count("val/roc_auc is not defined after epoch 1") == 1
    assert "is not defined after epoch 2" not in caplog.text
    result.print()
    assert "no validation defines val/roc_auc" in capsys.readouterr().out
