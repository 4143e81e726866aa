"""The table of results, with intervals, baselines and means."""

from __future__ import annotations

import io
import math
import re

from rich.console import Console

from molgcn.comparison.table import results_tables, table_columns
from molgcn.data.target_config import TargetConfig
from molgcn.metrics.comparison import Comparison, Interval
from molgcn.process.tables import print_table
from molgcn.tasks.registry import build_task
from molgcn.tasks.regression import Regression

METRICS = ("mae", "rmse", "r2")


def printed_tables(tables, width=80):
    console = Console(width=width, file=io.StringIO())
    for table in tables:
        print_table(console, table)
    return console.file.getvalue().replace("\N{NO-BREAK SPACE}", " ")


def printed(names, comparison):
    values = {f"{part}/{metric}/{name}": 0.5 for part in ("val", "test") for metric in METRICS for name in names}
    return printed_tables(results_tables(Regression(names, ("",) * len(names)), "title", values, ["val", "test"], comparison))


def comparison_of(endings):
    keys = [f"test/{metric}{ending}" for metric in METRICS for ending in endings]
    return Comparison(
        means=dict.fromkeys((f"{part}/{metric}" for part in ("val", "test") for metric in METRICS), 0.75),
        counted={f"{part}/{metric}": 1 if part == "val" else len(endings) - 1 for part in ("val", "test") for metric in METRICS},
        intervals=dict.fromkeys(keys, Interval(0.25, 0.625, 3)),
        resamples=1000,
        baselines={"random forest": dict.fromkeys(keys, math.nan)},
    )


def test_intervals_and_baselines_stand_below_the_value():
    text = printed(("a",), comparison_of(["/a"]))
    lines = [re.sub(r"[│\s]+", " ", line).strip() for line in text.splitlines()]
    first = lines.index("a - 0.5 0.5 0.5 0.5")
    assert lines[first + 1 : first + 4] == ["95 % from 0.25 0.25 0.25", "95 % to 0.625 0.625 0.625", "forest - - -"]
    assert "95 % intervals from 1,000 bootstrap resamples of the molecules; up to 3 of them do not define" in " ".join(text.split())
    assert max(map(len, text.splitlines())) <= 80


def test_of_many_targets_the_mean_alone_has_them():
    names = tuple("abcdef")
    text = printed(names, comparison_of(["", *(f"/{name}" for name in names)]))
    assert text.count("95 % from") == text.count(" forest") == 1
    assert re.search(r"mean of 6\s+│\s+│\s+0.75 \(of 1\)\s+│\s+0.75\s", text)


def test_without_a_comparison_there_are_values_alone():
    text = printed(("a", "b"), None)
    assert "95 %" not in text and "mean" not in text and text.count("0.5") == 8


def test_each_kind_of_target_has_a_table_with_its_own_baseline():
    task = build_task("mixed", ("toxic", "logp"), ("", ""), 0, TargetConfig(tasks={"toxic": "classification", "logp": "regression"}))
    values = {f"test/{metric}/{name}": 0.5 for part in task.parts for metric in part.metrics for name in part.names}
    baselines = {"training mean": {"test/mae/logp": 0.75}, "class prior": {"test/mcc/toxic": 0.25}}
    text = printed_tables(results_tables(task, "title", values, ["test"], Comparison(baselines=baselines)))
    numbers, classes = text.split("┏")[1:]
    assert "test MAE" in numbers and " mean " in numbers and "0.75" in numbers and "prior" not in numbers
    assert "test ROC AUC" in classes and " prior " in classes and "0.25" in classes and " mean " not in classes


def test_columns_are_those_that_were_measured():
    values = {"train/mae/a": 1.0, "val/mae/a": 1.0, "val/r2/a": 1.0, "train/nll/a": 1.0}
    assert table_columns(Regression(("a",), ("",)), values, ["train", "val"]) == [("train", "mae"), ("val", "mae"), ("val", "r2")]


def test_a_table_that_is_wider_than_the_terminal_is_printed_whole():
    columns = [("train", "mae"), ("val", "mae"), *(("test", metric) for metric in ("mae", "rmse", "r2", "pinball", "coverage"))]
    values = {f"{part}/{metric}/logS": -0.012345 for part, metric in columns}
    tables = results_tables(Regression(("logS",), ("",)), "title", values, ["train", "val", "test"])
    lines = printed_tables(tables).splitlines()
    assert "COVERAGE" in " ".join(lines) and lines[-2].count("-0.01235") == 6 and len({len(line) for line in lines[1:]}) == 1


def test_nothing_is_cut_on_a_narrow_terminal():
    metrics = {
        f"{part}/{metric}/half_life_obach": -0.012345 for part in ("train", "val", "test") for metric in ("mae", "rmse", "r2", "spearman")
    }
    task = Regression(("half_life_obach",), ("kcal/mol",))
    assert "\u2026" not in printed_tables(results_tables(task, "title", metrics, ["train", "val", "test"], None, "val/spearman"), 70)


def test_names_of_rows_stay_whole_beside_many_columns():
    columns = [("train", "mae"), ("val", "mae"), *(("test", metric) for metric in ("mae", "rmse", "r2", "nll"))]
    values = {f"{part}/{metric}/pIC50": -0.012345 for part, metric in columns}
    given = Comparison(intervals={key: Interval(-0.2345, 0.6789, 0) for key in values}, baselines={"network": values, "trees": values})
    text = printed_tables(results_tables(Regression(("pIC50",), ("",)), "title", values, ["train", "val", "test"], given))
    assert all(f"│  {name}" in text for name in ("95 % from", "95 % to", "network", "trees"))
