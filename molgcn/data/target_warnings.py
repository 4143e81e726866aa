"""What a person should know of the targets before a model learns them, in one line of warning each."""

from __future__ import annotations

import logging
from collections.abc import Collection

import numpy as np

from molgcn.data.digits import digits_of, quartiles
from molgcn.data.packed import PackedMolecules

log = logging.getLogger(__name__)
_COARSE = 1e-3  # of the spread: steps of float32 that a model would notice


def warn_of_targets(molecules: PackedMolecules, train: np.ndarray, transformed: Collection[str] = ()) -> None:
    """Warn of targets whose values a network in float32 cannot tell apart.

    Args:
        molecules: the set.
        train: int [n], its training part; each target has a value there.
        transformed: targets that are not learned as they are.
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
    """Return float32's spacing, in the values' unit, where the quartiles of the standardised values [n] lie."""
    mean, std = known.mean(), known.std() or 1.0
    return max(float(np.spacing(np.float32(abs(value - mean) / std)) * std) for value in quartiles(known))
