"""Sets a part of the training molecules aside for the calibration of uncertainties."""

from __future__ import annotations

import numpy as np

from molgcn.data.splits.groups import place_groups
from molgcn.data.splits.parts import CALIBRATION, Split
from molgcn.errors import UserError


def cut_calibration(split: Split, fraction: float, seed: int, groups: np.ndarray | None = None) -> Split:
    """Draw the part "calibration" from the part "train".

    Args:
        split: a split without a calibration part.
        fraction: fraction of the training part, rounded to whole molecules.
        seed: seed of the draw.
        groups: int [M], equal for molecules that stay in one part. The calibration part may then have fewer molecules than `fraction` says.
            None does not keep molecules together.

    Returns:
        The split with both parts, as sorted int64 positions.

    Raises:
        UserError: when either part would be empty.
    """
    train = split["train"]
    size = round(fraction * len(train))
    _, group, counts = np.unique(train if groups is None else groups[train], return_inverse=True, return_counts=True)
    order = np.random.default_rng((seed, 1)).permutation(len(counts))  # another random stream than that of the split
    in_calibration = np.empty(len(counts), bool)
    in_calibration[order] = np.array(place_groups(counts[order].tolist(), (size, len(train)), -1)) == 0
    cut, kept = train[in_calibration[group]], train[~in_calibration[group]]
    if not len(cut) or not len(kept):
        raise UserError(
            f"dataset.calibration_fraction={fraction:g} of {len(train):,} training molecules ({len(counts):,} distinct ones) "
            f"leaves {len(cut):,} for calibration and {len(kept):,} for training. Both need at least one; use another fraction or "
            "more molecules."
        )
    return {**split, "train": kept, CALIBRATION: cut}
