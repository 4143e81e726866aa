"""Says what to know about targets before a model is trained: missing labels, bounds, and values that float32 does not tell apart."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np

from molgcn.data.digits import digits_of, quartiles
from molgcn.data.levels import Rows
from molgcn.data.packed import PackedMolecules
from molgcn.data.splits.parts import IN_WORDS
from molgcn.data.target_config import TargetConfig
from molgcn.errors import shown

log = logging.getLogger(__name__)
_COARSE = 1e-3  # step of float32, as a fraction of the spread, that a model would notice
_LISTED = 30


def warn_of_targets(molecules: PackedMolecules, train: np.ndarray, config: TargetConfig) -> None:
    """Warn of targets whose values a network in float32 cannot tell apart. Those that are transformed are not checked."""
    rows = Rows.of(molecules)
    for name, column in zip(molecules.target_names, rows.targets[rows.at(train)].T, strict=True):
        known = column[~np.isnan(column)].astype(np.float64)
        if config.transform_of(name, known) != "standardize":
            continue
        (low, high), step = quartiles(known), float32_step(known)
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


def report_labels(molecules: PackedMolecules, parts: Mapping[str, np.ndarray], title: str) -> None:
    """Log the number of labels of each target in each part, and the number of molecules that have none at all.

    Nothing is logged if no label is missing. Of many targets those with the fewest labels are listed. Empty parts are left out.
    """
    rows = Rows.of(molecules)
    known = {part: ~np.isnan(rows.targets[rows.at(indices)]) for part, indices in parts.items() if len(indices)}
    if all(values.all() for values in known.values()):
        return
    counts = np.stack([values.sum(axis=0) for values in known.values()], axis=1)
    order = np.arange(len(counts)) if len(counts) <= _LISTED else np.argsort(counts.sum(axis=1), kind="stable")
    said = [f"{shown(molecules.target_names[target])} {_joined(counts[target])}" for target in order[:_LISTED].tolist()]
    if len(rest := counts[order[_LISTED:]].sum(axis=1)):
        said.append(f"{len(rest):,} more targets {rest.min():,} to {rest.max():,} in all")
    none = np.array([(~values.any(axis=1)).sum() for values in known.values()])
    without = f"; molecules without any label: {_joined(none)}" if len(counts) > 1 and none.any() and not rows.levels else ""
    log.info("%s: labels in %s: %s%s", title, " / ".join(IN_WORDS.get(part, part) for part in known), "; ".join(said), without)


def _joined(numbers: np.ndarray) -> str:
    return " / ".join(f"{number:,}" for number in numbers.tolist())


def report_bounds(molecules: PackedMolecules, title: str) -> None:
    """Log how many values of each target are bounds, for a set that has bounds."""
    if molecules.bounds is None:
        return
    counts = (molecules.bounds != 0).sum(axis=0).tolist()
    listed = ", ".join(
        f"{bounded:,} of {known:,} values of {shown(name)}"
        for name, bounded, known in zip(molecules.target_names, counts, molecules.num_labels, strict=True)
        if bounded
    )
    log.info("%s: %s are bounds; metrics, plots and reports count exact values only", title, listed)
