"""Network and trees are mixed by target, whatever the targets are."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from molgcn.blending.blend import FILE, FOLDER, Blend
from molgcn.blending.shares import OF_CLASSES, OF_NUMBERS
from molgcn.config.training import TrainingConfig
from molgcn.data import PackedMolecules
from molgcn.data.descriptors.attach import with_descriptors
from molgcn.data.label_columns import with_labels
from molgcn.data.target_config import TargetConfig
from molgcn.errors import UserError
from molgcn.tasks.registry import build_task, learned_with

NAMES = ("ic50", "kind", "toxic")
TASKS = {"ic50": "regression", "kind": "multiclass", "toxic": "classification"}
COUNT = 120


@pytest.fixture(scope="module")
def molecules():
    """Molecules with two descriptors, by which all targets can be told."""
    found = PackedMolecules.from_smiles(["CCO"] * COUNT, num_workers=0)
    x = np.random.default_rng(0).normal(size=(COUNT, 2))
    targets = np.stack([10 ** x[:, 0], np.digitize(x[:, 1], [-0.5, 0.5]), x[:, 0] > 0], axis=1)
    targets[::5, 1] = math.nan
    return with_descriptors(found, x).with_data(targets, target_names=NAMES)


def task_of(loss="auto", kinds=TASKS, transform="log10"):
    given = TargetConfig(tasks=kinds, transforms={"ic50": transform} if transform else None)
    name = "mixed" if len(kinds) > 1 else next(iter(kinds.values()))
    num_classes = {"regression": 0, "classification": 2}.get(name, 3)
    return learned_with(build_task(name, tuple(kinds), ("",) * len(kinds), num_classes, given), TrainingConfig(loss=loss))


def blend_of(task, molecules, **options):
    return Blend.fit(task, tuple(task.statistics_of(molecules.targets).values()), molecules, 0, **{"balanced": False, **options})


@pytest.fixture(scope="module")
def of_all(molecules):
    """Return the task of all targets, and its trees."""
    task = task_of()
    return task, blend_of(task, molecules)


def test_each_target_is_learned_and_weighed(molecules, of_all, tmp_path):
    task, blend = of_all
    guess = np.repeat(task.guess(*blend.statistics), COUNT, axis=0)
    found = blend.trees_alone.mix(guess, molecules)
    measures = task.measure(found, molecules.targets)
    assert measures["spearman/ic50"] > 0.95 and measures["roc_auc/kind"] > 0.95 and measures["roc_auc/toxic"] > 0.95
    np.testing.assert_allclose(found[:, 1:4].sum(axis=1), 1)
    weighed = blend.weighed(guess, molecules)
    assert blend.shares == [OF_NUMBERS, OF_CLASSES, OF_CLASSES]
    assert all(share < expected for share, expected in zip(weighed.shares, blend.shares, strict=True))
    weighed.save(tmp_path)
    again = Blend.load(tmp_path, task, blend.statistics)
    np.testing.assert_array_equal(again.mix(guess, molecules), weighed.mix(guess, molecules))
    assert sorted(path.name for path in (tmp_path / FOLDER).iterdir()) == [FILE, *(f"target_{place}.txt" for place in range(3))]


def test_numbers_are_mixed_as_they_are_learned(molecules, of_all):
    """The mix is the geometric mean: of values that are learned as logarithms, and of probabilities."""
    task, blend = of_all
    guess = np.repeat(task.guess(*blend.statistics), COUNT, axis=0)
    trees, both = blend.trees_alone.mix(guess, molecules), blend.mix(guess, molecules)
    np.testing.assert_allclose(both[:, 0], guess[:, 0] ** OF_NUMBERS * trees[:, 0] ** (1 - OF_NUMBERS))
    odds = both[:, 4:] / (1 - both[:, 4:])
    expected = (guess[:, 4:] / (1 - guess[:, 4:])) ** OF_CLASSES * (trees[:, 4:] / (1 - trees[:, 4:])) ** (1 - OF_CLASSES)
    np.testing.assert_allclose(odds, expected, rtol=1e-6)
    products = guess[:, 1:4] ** OF_CLASSES * trees[:, 1:4] ** (1 - OF_CLASSES)
    np.testing.assert_allclose(both[:, 1:4], products / products.sum(axis=1, keepdims=True), rtol=1e-6)


@pytest.mark.parametrize(("loss", "moved"), [("mve", 1), ("evidential", 1), ("quantile", 3)])
def test_quantiles_move_with_the_value_and_deviations_stay(molecules, loss, moved):
    task = task_of(loss, {"ic50": "regression"}, None)
    molecules = molecules.with_data(molecules.targets[:, :1], target_names=NAMES[:1])
    blend = blend_of(task, molecules)
    given = np.abs(np.random.default_rng(1).normal(size=(COUNT, task.num_predictions)))
    found = blend.mix(given, molecules)
    moves = found - given
    np.testing.assert_allclose(moves[:, :moved], np.repeat(moves[:, :1], moved, axis=1), atol=1e-9)
    assert np.abs(moves[:, 0]).min() > 0 and not moves[:, moved:].any()


def test_bounds_and_weights_of_molecules(molecules):
    """A target that is a bound trains no trees, and a molecule of weight 0 counts as none."""
    task = task_of(kinds={"ic50": "regression"}, transform=None)
    y = np.where(np.arange(COUNT) % 2, 5.0, 1.0)[:, None]
    molecules = molecules.with_data(y, target_names=NAMES[:1])
    weighted = with_labels(molecules, None, (y[:, 0] == 5.0).astype(float))
    blend = blend_of(task, weighted)
    np.testing.assert_allclose(blend.trees_alone.mix(y, molecules), 5.0, atol=1e-3)
    bounded = with_labels(molecules, np.ones_like(y), None)
    blend = blend_of(task, bounded)
    assert blend.trees == [None] and blend.shares == blend.trees_alone.shares == [1.0]
    np.testing.assert_allclose(blend.mix(y, molecules), y)


def test_balanced_classes_predict_the_rare_one_more_often(molecules):
    task = task_of(kinds={"toxic": "classification"}, transform=None)
    rare = (np.arange(COUNT) % 20 == 0).astype(float)[:, None]
    alike = replace(molecules.with_data(rare, target_names=NAMES[2:]), descriptors=np.zeros((COUNT, 1), np.float32))
    plain, balanced = (blend_of(task, alike, balanced=one).trees_alone.mix(rare, alike) for one in (False, True))
    np.testing.assert_allclose(plain, 0.05, atol=1e-3)
    np.testing.assert_allclose(balanced, 0.5, atol=1e-2)


def test_damage_is_said(molecules, tmp_path):
    task = task_of(kinds={"toxic": "classification"}, transform=None)
    molecules = molecules.with_data(molecules.targets[:, 2:], target_names=NAMES[2:])
    blend = blend_of(task, molecules)
    with pytest.raises(UserError, match=r"has no trees/blend\.json.*Resume the run"):
        Blend.load(tmp_path, task, blend.statistics)
    blend.save(tmp_path)
    with pytest.raises(UserError, match="another version of RDKit"):
        blend.mix(molecules.targets, with_descriptors(molecules, np.zeros((COUNT, 1)), ["more"]))
    with pytest.raises(UserError, match="these have none"):
        blend.mix(np.zeros((1, 1)), PackedMolecules.from_smiles(["C"], num_workers=0))
    other = task_of(kinds={"kind": "multiclass"}, transform=None)
    with pytest.raises(UserError, match=r"blend\.json cannot be used: it is about \['toxic'\]"):
        Blend.load(tmp_path, other, blend.statistics)
    (tmp_path / FOLDER / "target_0.txt").unlink()
    with pytest.raises(UserError, match=r"blend\.json cannot be used.*target_0"):
        Blend.load(tmp_path, task, blend.statistics)
