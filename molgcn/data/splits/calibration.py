"""A part that is cut from training for the calibration of uncertainties, which nothing else sees."""

from __future__ import annotations

import numpy as np

from molgcn.data.splits.groups import place_groups
from molgcn.data.splits.parts import CALIBRATION, Split
from molgcn.errors import UserError


def cut_calibration(split: Split, fraction: float, seed: int, groups: np.ndarray | None = None) -> Split:
    """Draw the part "calibration" from the part "train".

    Args:
        split: without such a part.
        fraction: of the training part, rounded to whole molecules.
        seed: of the draw.
        groups: int [M], equal for molecules that are to stay in one part; the part then has at most as many molecules as `fraction` says.
            None where each may go anywhere.

    Returns:
        The split with sorted int64 positions of both.

    Raises:
        UserError: when either would be empty.
    """
    train = split["train"]
    size = round(fraction * len(train))
    _, group, counts = np.unique(train if groups is None else groups[train], return_inverse=True, return_counts=True)
    order = np.random.default_rng((seed, 1)).permutation(len(counts))  # a stream of its own beside that of the split
    in_calibration = np.empty(len(counts), bool)
    in_calibration[order] = np.array(place_groups(counts[order].tolist(), (size, len(train)), -1)) == 0
    cut, kept = train[in_calibration[group]], train[~in_calibration[group]]
    if not len(cut) or not len(kept):
        raise UserError(
            f"dataset.calibration_fraction={fraction:g} of {len(train):,} training molecules ({len(counts):,} that are no copies of one "
            f"another) leaves {len(cut):,} for calibration and {len(kept):,} for training. Both need at least one; use another fraction or "
            "more molecules."
        )
    return {**split, "train": kept, CALIBRATION: cut}
