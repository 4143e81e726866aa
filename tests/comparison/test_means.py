"""Metrics are averaged over targets."""

from __future__ import annotations

import math

import numpy as np

from molgcn.comparison.compare import means, means_of_parts
from molgcn.config.training import TrainingConfig
from molgcn.data.target_config import TargetConfig
from molgcn.tasks.classes import Classification
from molgcn.tasks.registry import build_task, learned_with
from molgcn.tasks.regression import Regression


def test_what_is_undefined_is_left_out_and_counted():
    mean, counts = means(Regression(("a", "b"), ("", "")), {"mae/a": np.array([1.0, 2.0]), "mae/b": np.array([3.0, math.nan])})
    assert (mean["mae"].tolist(), counts["mae"].tolist()) == ([2.0, 2.0], [2, 1])
    mean, counts = means_of_parts(
        Classification(("a", "b/c"), ("", "")), {"val/f1/a": 0.5, "val/f1/b/c": math.nan, "test/f1/a": math.nan, "test/f1/b/c": math.nan}
    )
    assert (mean["val/f1"], counts) == (0.5, {"val/f1": 1, "test/f1": 0})
    assert math.isnan(mean["test/f1"])


def test_errors_in_different_units_have_no_mean():
    one = np.ones(1)
    values = {"mae/a": one, "mae/b": one, "r2/a": one, "r2/b": one}
    assert list(means(Regression(("a", "b"), ("", "eV")), values)[0]) == ["r2"]
    assert list(means(Regression(("a", "b"), ("eV", "eV")), values)[0]) == ["mae", "r2"]


def test_a_single_target_has_no_mean():
    assert means(Regression(("a",), ("",)), {"mae/a": np.ones(1)}) == ({}, {})


def test_a_pinball_loss_is_in_the_unit_of_its_target():
    task, one = learned_with(Regression(("a", "b"), ("", "eV")), TrainingConfig(loss="quantile")), np.ones(1)
    values = {f"{metric}/{name}": one for metric in ("pinball", "coverage") for name in "ab"}
    assert list(means(task, values)[0]) == ["coverage"]


def test_a_metric_of_two_tasks_has_no_mean():
    tasks = {"a": "classification", "b": "classification", "c": "multiclass", "d": "regression", "e": "regression"}
    task, one = build_task("mixed", tuple(tasks), ("",) * 5, 3, TargetConfig(tasks=tasks)), np.ones(1)
    values = {f"{metric}/{name}": one for part in task.parts for metric in part.metrics for name in part.names}
    assert list(means(task, values)[0]) == list(task.parts[0].metrics)
