"""The random forest baseline: scikit-learn's forest on RDKit's Morgan count fingerprints."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from molgcn.data.fingerprints import BITS, morgan_fingerprint
from molgcn.data.molecules import InvalidMoleculeError
from molgcn.data.packed import PackedMolecules
from molgcn.data.workers import available_cores, map_chunks
from molgcn.errors import UserError, counted

log = logging.getLogger(__name__)

TREES = 100
MOST = 50_000  # training molecules; scikit-learn holds their fingerprints as 400 MB of float32
_LONG = 5_000  # training molecules, from which on fitting takes minutes


def check_forest(molecules: PackedMolecules, key: str = "training.baseline") -> None:
    """Check that a forest can be fitted to the training molecules, and log where fitting will take long.

    Raises:
        UserError: for molecules without SMILES, or too many molecules. It names the configuration's `key` that asks for the forest.
    """
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

    Returns:
        Values float64 [K, T], or probabilities float64 [K, T, C] of C classes. They are NaN for a target without a known value.
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
