import csv
import math

import pytest

from molgcn.training.loggers import COLUMNS, MetricsCSV
from molgcn.training.train import train


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_columns_are_those_that_others_rely_on(tmp_path):
    logger = MetricsCSV(tmp_path / "metrics.csv", ["val/mae/gap", 'val/mae/a,"b"', "val/r2/gap"])
    assert COLUMNS[:4] == ("epoch", "step", "train/loss", "val/loss")
    assert {"throughput/molecules_per_second", "throughput/step_ms", "throughput/data_wait"} <= set(COLUMNS)
    logger.log_metrics({"epoch": 0, "val/loss": 0.25, 'val/mae/a,"b"': 1 / 3, "val/r2/gap": math.nan, "unknown": 1.0}, step=7)
    (row,) = rows_of(logger.path)
    assert (row["epoch"], row["step"], row["val/loss"], row['val/mae/a,"b"']) == ("0", "7", "0.25", "0.3333333")
    assert row["val/r2/gap"] == "nan"
    assert row["train/loss"] == row["val/mae/gap"] == ""
    assert "unknown" not in row


def test_an_existing_file_is_continued_and_can_be_cut_back(tmp_path):
    first = MetricsCSV(tmp_path / "metrics.csv", ["val/mae/y"])
    first.log_metrics({"train/loss": 1.0}, step=1)
    size = first.size
    first.log_metrics({"train/loss": 2.0}, step=2)
    again = MetricsCSV(tmp_path / "metrics.csv", ["val/mae/y"])
    again.truncate(size)
    again.log_metrics({"train/loss": 3.0}, step=2)
    assert [row["train/loss"] for row in rows_of(again.path)] == ["1", "3"]
    again.truncate(10 * size)  # a shorter file is left as it is
    assert len(rows_of(again.path)) == 2


def test_every_row_of_a_run(small_config, tmp_path):
    """240 molecules in batches of 32 give 8 steps per epoch, with rows after steps 3, 6 and 8 and one of validation."""
    result = train(small_config(), tmp_path)
    rows = rows_of(tmp_path / "metrics.csv")
    assert [int(row["step"]) for row in rows if row["train/loss"]] == [3, 6, 8, 11, 14, 16]
    assert [int(row["epoch"]) for row in rows if row["val/loss"]] == [0, 1]
    losses = [float(row["val/loss"]) for row in rows if row["val/loss"]]
    assert min(losses) == pytest.approx(result.best_loss, rel=1e-6)
    for row in rows:
        if row["train/loss"]:
            rate, step_ms = float(row["throughput/molecules_per_second"]), float(row["throughput/step_ms"])
            assert 0 < rate * step_ms / 1e3 <= 32.001  # molecules per step
            assert 0 <= float(row["throughput/data_wait"]) <= 1
            assert float(row["throughput/atoms_per_second"]) > rate
    rates = [float(row["lr"]) for row in rows if row["lr"]]
    assert rates == sorted(rates, reverse=True)  # the default schedule is a cosine, down to 0
    assert 0 == rates[-1] < rates[0] < 1e-3
