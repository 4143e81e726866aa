"""The baselines that a network should beat: a constant prediction, and scikit-learn's random forest on Morgan count fingerprints."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from contextlib import suppress

import numpy as np
from torch import Tensor

from molgcn.comparison.compare import with_means
from molgcn.data.fingerprints import BITS, morgan_fingerprint
from molgcn.data.label_columns import measured, metric_labels
from molgcn.data.molecules import InvalidMoleculeError
from molgcn.data.packed import PackedMolecules
from molgcn.data.workers import available_cores, map_chunks
from molgcn.errors import UserError, counted
from molgcn.metrics.comparison import FOREST, MEAN, PRIOR
from molgcn.tasks.base import Task
from molgcn.tasks.classes import ClassTask
from molgcn.tasks.regression import Regression

log = logging.getLogger(__name__)

TREES = 100
MOST = 50_000  # training molecules; scikit-learn holds their fingerprints as 400 MB of float32
_LONG = 5_000  # training molecules, from which on fitting takes minutes


def baselines_of(
    wanted: str, task: Task, statistics: Sequence[Tensor], part: str, asked: PackedMolecules, known: PackedMolecules | None, seed: int
) -> dict[str, dict[str, float]]:
    """Measure the baselines that `training.baseline` names ("none", "simple" or "rf") on the molecules of a part.

    The simple ones need the task's statistics of the training part, the forest its molecules, `known`. By name of the baseline, metrics are
    by "<part>/<metric>/<target>" and their means by "<part>/<metric>".
    """
    found: dict[str, dict[str, float]] = {}
    if wanted != "none":
        found |= simple_baseline(task, statistics, part, metric_labels(asked))
    if wanted == "rf" and known is not None:
        found |= forest_baseline(task, part, measured(known), asked, seed)
    return found


def simple_baseline(task: Task, statistics: Sequence[Tensor], part: str, targets: np.ndarray) -> dict[str, dict[str, float]]:
    """Measure the prediction of the training part's mean, or of its shares of the classes, for all targets [M, T] of a part, or labels."""
    task = plain(task)
    measured = measured_as(task, part, np.repeat(task.guess(*statistics), len(targets), axis=0), targets)
    found: dict[str, dict[str, float]] = {}
    for one in task.parts:
        own = {key: value for key, value in measured.items() if key.split("/")[1] in one.known_metrics}
        found.setdefault(PRIOR if one.num_classes else MEAN, {}).update(own)
    return found


def forest_baseline(task: Task, part: str, known: PackedMolecules, asked: PackedMolecules, seed: int) -> dict[str, dict[str, float]]:
    """Measure a random forest that is fitted to the training molecules `known`, on the molecules of a part; both have SMILES."""
    task = plain(task)
    columns = []
    for one, _, targets in task.of_parts(np.empty((0, task.num_predictions)), known.targets):
        found = forest_predictions(known.smiles or [], targets, asked.smiles or [], one.num_classes, seed)
        columns.append(one.joined(found) if isinstance(one, ClassTask) else found)
    return {FOREST: measured_as(task, part, task.together(columns), metric_labels(asked))}


def plain(task: Task) -> Task:
    """Return the task with values and probabilities as its only predictions, without uncertainties."""

    def without(part: Task) -> Task:
        if not isinstance(part, Regression):
            return part
        chosen = tuple(metric for metric in part.chosen if metric in part.extra)
        return Regression(part.names, part.units, chosen=chosen, transforms=part.transforms)

    return task.with_parts(without)


def measured_as(task: Task, part: str, predictions: np.ndarray, targets: np.ndarray, wanted: Collection[str] = ()) -> dict[str, float]:
    """Return wanted metrics of predictions [M, P], or all, by "<part>/<metric>/<target>", and their means by "<part>/<metric>"."""
    found = with_means(task, task.values(predictions, targets, wanted or task.all_metrics))
    return {f"{part}/{key}": float(values[0]) for key, values in found.items()}


def check_forest(molecules: PackedMolecules, key: str = "training.baseline") -> None:
    """Raise UserError, naming the `key` that asks for a forest, where there are no SMILES or too many molecules. Log if it takes long."""
    cause = ""
    if molecules.smiles is None:
        cause = "needs SMILES, which these molecules do not have"
    elif len(molecules) > MOST:
        cause = f"is for at most {MOST:,} training molecules, and there are {len(molecules):,}"
    if cause:
        raise UserError(f"{key}=rf {cause}. Use {key}=simple, or train on a smaller set (dataset.subset=).")
    if len(molecules) > _LONG:
        log.info("%s=rf: the forest of %s takes minutes", key, counted(len(molecules), "molecule"))


def forest_predictions(smiles: Sequence[str], targets: np.ndarray, asked: Sequence[str], num_classes: int, seed: int) -> np.ndarray:
    """Fit a forest to the known values of each target [M, T] (NaN = missing) of M SMILES, and predict K others.

    Predicted are values [K, T], or probabilities [K, T, C] of C classes, NaN for a target without a known value.
    """
    known, unknown = fingerprints(smiles), fingerprints(asked)
    there = ~np.isnan(targets.T)
    pairs = zip(there, targets.T, strict=True)
    return np.stack([_predicted(known[some], target[some], unknown, num_classes, seed) for some, target in pairs], axis=1)


def fingerprints(smiles: Sequence[str]) -> np.ndarray:
    """Compute Morgan count fingerprints of radius 2, uint8 [M, 2048], up to 255; 0 where RDKit cannot read the SMILES."""
    parts = list(map_chunks(_fingerprints, list(smiles), description="fingerprints"))
    return np.concatenate(parts) if parts else np.zeros((0, BITS), np.uint8)


def _fingerprints(smiles: Sequence[str]) -> np.ndarray:
    from rdkit import rdBase

    rows = np.zeros((len(smiles), BITS), np.uint8)
    with rdBase.BlockLogs():
        for row, text in zip(rows, smiles, strict=True):
            with suppress(InvalidMoleculeError):
                row[:] = morgan_fingerprint(text, counts=True).clip(max=255)
    return rows


def _predicted(known: np.ndarray, values: np.ndarray, asked: np.ndarray, num_classes: int, seed: int) -> np.ndarray:
    """Fit a forest to one target and return predicted values [K] or probabilities [K, C]."""
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    shares = np.zeros((len(asked), num_classes))
    if not len(values):
        return np.full(shares.shape if num_classes else len(asked), np.nan)
    # Breiman advises a third of the features per split for numbers, which takes a third of the time of all features
    options = {"n_estimators": TREES, "random_state": seed, "n_jobs": available_cores()}
    forest = RandomForestClassifier(**options) if num_classes else RandomForestRegressor(max_features=1 / 3, **options)
    forest.fit(known, values.astype(np.int64 if num_classes else np.float64))
    forest.n_jobs = 1  # several threads would sum the trees in a random order
    if not num_classes:
        return forest.predict(asked)
    shares[:, forest.classes_] = forest.predict_proba(asked)
    return shares
