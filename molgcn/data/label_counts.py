"""Says how many labels each part of a set has, where labels are missing."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np

from molgcn.data.packed import PackedMolecules
from molgcn.data.splits.parts import IN_WORDS
from molgcn.errors import shown

log = logging.getLogger(__name__)

_LISTED = 30


def report_labels(molecules: PackedMolecules, parts: Mapping[str, np.ndarray], title: str) -> None:
    """Log the number of labels of each target in each part, and the number of molecules that have none at all.

    Nothing is logged if no label is missing. Of many targets those with the fewest labels are listed.

    Args:
        molecules: the set.
        parts: positions in the set by part. Empty parts are left out.
        title: name of the set.
    """
    known = {part: ~np.isnan(molecules.targets[indices]) for part, indices in parts.items() if len(indices)}
    if all(values.all() for values in known.values()):
        return
    counts = np.stack([values.sum(axis=0) for values in known.values()], axis=1)
    order = np.arange(len(counts)) if len(counts) <= _LISTED else np.argsort(counts.sum(axis=1), kind="stable")
    said = [f"{shown(molecules.target_names[target])} {_joined(counts[target])}" for target in order[:_LISTED].tolist()]
    if len(rest := counts[order[_LISTED:]].sum(axis=1)):
        said.append(f"{len(rest):,} more targets {rest.min():,} to {rest.max():,} in all")
    none = np.array([(~values.any(axis=1)).sum() for values in known.values()])
    without = f"; molecules without any label: {_joined(none)}" if len(counts) > 1 and none.any() else ""
    log.info("%s: labels in %s: %s%s", title, " / ".join(IN_WORDS.get(part, part) for part in known), "; ".join(said), without)


def _joined(numbers: np.ndarray) -> str:
    return " / ".join(f"{number:,}" for number in numbers.tolist())
