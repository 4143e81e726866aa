"""Baselines predict without looking at molecules, and are shown beside the metrics."""

from __future__ import annotations

import math

import numpy as np
import pytest

from molgcn.comparison.baselines import forest_baseline, simple_baseline
from molgcn.comparison.compare import class_counts, compare
from molgcn.config.training import TrainingConfig
from molgcn.data import PackedMolecules
from molgcn.data.target_config import TargetConfig
from molgcn.tasks.registry import build_task, learned_with

NAMES = ("toxic", "logp")
TARGETS = np.array([[0.0, 1.0], [0.0, 2.0], [0.0, math.nan], [1.0, 6.0]])


def task_of(**changes):
    task = build_task("mixed", NAMES, ("", ""), 0, TargetConfig(tasks={"toxic": "classification", "logp": "regression"}))
    return learned_with(task, TrainingConfig(**changes))


@pytest.mark.parametrize("loss", ["auto", "mve", "quantile"])
def test_each_kind_of_target_has_a_baseline_of_its_own(loss):
    task = task_of(loss=loss)
    statistics = tuple(task.statistics_of(TARGETS).values())
    found = simple_baseline(task, statistics, "test", np.array([[1.0, 4.0], [0.0, 2.0]]))
    assert found.keys() == {"training mean", "class prior"}
    assert found["training mean"]["test/mae/logp"] == 1.0
    assert found["class prior"]["test/brier/toxic"] == pytest.approx((0.75**2 + 0.25**2) / 2)
    assert {key.split("/")[2] for key in found["training mean"]} == {"logp"}


def test_of_logarithms_the_baseline_is_their_mean():
    task = build_task("regression", ("ic50",), ("nM",), 0, TargetConfig(transforms={"ic50": "log10"}))
    statistics = tuple(task.statistics_of(np.array([[1.0], [100.0]])).values())
    assert simple_baseline(task, statistics, "test", np.array([[10.0], [12.0]]))["training mean"]["test/mae/ic50"] == pytest.approx(1.0)


def test_a_forest_learns_each_kind_of_target():
    molecules = PackedMolecules.from_smiles(["C" * number for number in range(1, 41)], num_workers=0)
    molecules.targets = np.stack([np.arange(40.0) > 20, np.arange(40.0)], axis=1).astype(float)
    found = forest_baseline(task_of(), "test", molecules, molecules, seed=0)["random forest"]
    assert found["test/roc_auc/toxic"] > 0.99 and found["test/r2/logp"] > 0.9


def test_intervals_of_all_targets_are_from_the_same_resamples():
    rng = np.random.default_rng(0)
    targets = np.stack([rng.integers(2, size=60), rng.normal(size=60)], axis=1).astype(float)
    task = task_of(loss="mve")
    predictions = np.stack([rng.random(60), targets[:, 1] + rng.normal(size=60), np.ones(60)], axis=1)
    metrics = {f"test/{key}": value for key, value in task.measure(predictions, targets).items()}
    found = compare(task, metrics, "test", predictions, targets, 200, 0, {}, {}).intervals
    assert found.keys() == metrics.keys() and "test/nll/logp" in found
    assert all(interval.low < metrics[key] < interval.high for key, interval in found.items())
    assert class_counts(task, targets).shape == (2, 2)
