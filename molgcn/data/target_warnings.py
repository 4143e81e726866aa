"""Warns of targets that a model cannot learn well, before it is trained."""

from __future__ import annotations

import logging
from collections.abc import Collection

import numpy as np

from molgcn.data.digits import digits_of, quartiles
from molgcn.data.packed import PackedMolecules

log = logging.getLogger(__name__)
_COARSE = 1e-3  # step of float32, as a fraction of the spread, that a model would notice


def warn_of_targets(molecules: PackedMolecules, train: np.ndarray, transformed: Collection[str] = ()) -> None:
    """Warn of targets whose values a network in float32 cannot tell apart.

    Args:
        molecules: the set.
        train: int [n], positions of the training part. Each target must have a value there.
        transformed: names of targets that are transformed, which are not checked.
    """
    for name, column in zip(molecules.target_names, molecules.targets.T, strict=True):
        if name not in transformed:
            _warn_of_steps(name, column[train].astype(np.float64))


def _warn_of_steps(name: str, column: np.ndarray) -> None:
    known = column[~np.isnan(column)]
    low, high = quartiles(known)
    step = float32_step(known)
    if step > _COARSE * (high - low) > 0:
        log.warning(
            "Target '%s': half of its values lie between %s and %s, where a network in float32 tells apart only steps of %.2g, because "
            "values from %.4g to %.4g set the scale. Correct those that are far from the others, or use trainer.precision=64-true.",
            *(name, *(format(value, f".{digits_of(known)}g") for value in (low, high)), step, known.min(), known.max()),
        )


def float32_step(known: np.ndarray) -> float:
    """Return the larger spacing of float32 at the quartiles of the standardised values [n], in the unit of the values."""
    mean, std = known.mean(), known.std() or 1.0
    return max(float(np.spacing(np.float32(abs(value - mean) / std)) * std) for value in quartiles(known))
