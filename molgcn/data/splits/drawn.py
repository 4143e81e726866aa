"""Splits that are drawn by a seeded shuffle of molecules or of whole groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from molgcn.data.splits.parts import CALIBRATION, Split, as_split, large_size, split_sizes
from molgcn.errors import UserError, counted


def random_split(
    num_molecules: int,
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    groups: np.ndarray | None = None,
    kind: str = "groups of copies",
) -> Split:
    """Shuffle molecules with NumPy's PCG64 generator and cut them into parts. The same seed gives the same split on every machine.

    Molecules of one of the `groups`, which messages call `kind`, stay in one part. Sizes then follow `fractions` (see
    :func:`~molgcn.data.splits.parts.split_sizes`) as closely as whole groups allow, and groups larger than half of the smaller one of
    validation and test are placed first.
    """
    sizes = split_sizes(num_molecules, fractions)
    shuffled = np.random.default_rng(seed).permutation(num_molecules)
    groups = np.arange(num_molecules) if groups is None else groups
    _, first, counts = np.unique(groups[shuffled], return_index=True, return_counts=True)
    large = counts > large_size(sizes)
    in_order = np.lexsort((first, ~large))  # large groups first, then the others in shuffled order
    placed = place_groups(groups, in_order, sizes, num_molecules, int(large.sum()))
    why = f"{counted(num_molecules, 'molecule')} are only {len(counts)} {kind} that stay together. Use more, or other fractions"
    return as_split(placed, sizes, why)


def scaffold_split(scaffolds: np.ndarray, fractions: Sequence[float] = (0.8, 0.1, 0.1), seed: int = 0) -> Split:
    """Place whole scaffolds, the large ones in training, so that validation and test have many different scaffolds.

    Scaffolds larger than half of the smaller one of validation and test go to training. The others are shuffled by `seed` and fill
    training, validation and test in this order. Sizes follow `fractions` as closely as whole scaffolds allow. If scaffolds that are too
    large for training leave fewer molecules than planned, all parts get their share of the rest. Sizes that leave some molecules unused are
    never exceeded.
    """
    sizes = split_sizes(len(scaffolds), fractions)
    names, counts = np.unique(scaffolds, return_counts=True)
    is_large = counts > large_size(sizes)
    by_size = np.argsort(-counts, kind="stable")
    large, small = by_size[is_large[by_size]], by_size[~is_large[by_size]].tolist()
    np.random.default_rng(seed).shuffle(small)
    placed = place_groups(scaffolds, np.array([*large, *small]), sizes, len(scaffolds), len(large), otherwise=0)
    why = (
        f"{counted(len(scaffolds), 'molecule')} have only {counted(len(names), 'different scaffold')}. Use split=random, or more molecules"
    )
    return as_split(placed, sizes, why)


def cut_calibration(split: Split, fraction: float, seed: int, groups: np.ndarray | None = None) -> Split:
    """Draw the part "calibration" from the part "train". Its size is a fraction of the training part, rounded to whole molecules.

    Molecules of equal `groups` [M] stay in one part. The calibration part may then have fewer molecules than `fraction` says.
    """
    train = split["train"]
    size = round(fraction * len(train))
    own = train if groups is None else groups[train]
    count = len(np.unique(own))
    order = np.random.default_rng((seed, 1)).permutation(count)  # another random stream than that of the split
    in_calibration = place_groups(own, order, (size, len(train)), -1) == 0
    cut, kept = train[in_calibration], train[~in_calibration]
    if not len(cut) or not len(kept):
        raise UserError(
            f"dataset.calibration_fraction={fraction:g} of {len(train):,} training molecules ({count:,} distinct ones) "
            f"leaves {len(cut):,} for calibration and {len(kept):,} for training. Both need at least one; use another fraction or "
            "more molecules."
        )
    return {**split, "train": kept, CALIBRATION: cut}


def place_groups(
    groups: np.ndarray,
    order: np.ndarray,
    sizes: Sequence[int],
    num_molecules: int,
    num_large: int | None = None,
    otherwise: int | None = None,
) -> np.ndarray:
    """Place each group, in turn, in the first part that has room for it.

    If the large groups leave fewer molecules than the parts have room for, as a huge group does, the room of all parts is reduced in
    proportion. If the sizes sum to `num_molecules`, every group is placed and no part stays empty while another one has two groups.
    Otherwise groups that do not fit are left out.

    Args:
        groups: int [M], equal for molecules of one group.
        order: int, positions of the groups among their sorted names, in the order in which they are placed, large groups first.
        sizes: number of molecules of each part, 0 for a part that is not wanted.
        num_molecules: number of all molecules.
        num_large: number of large groups. None does not reduce the room of parts.
        otherwise: the part for groups that do not fit. None takes the part with the most room.

    Returns:
        The number of each molecule's part, int64 [M], -1 for a molecule that is left out.
    """
    _, group, by_name = np.unique(groups, return_inverse=True, return_counts=True)
    counts = by_name[order].tolist()
    wanted = [part for part, size in enumerate(sizes) if size]
    everything = sum(sizes) == num_molecules
    room, placed = list(sizes), list[int]()
    for place, count in enumerate(counts):
        if place == num_large:
            room = _shared_out(room, sum(counts[place:]))
        part = next((part for part in wanted if count <= room[part]), -1)
        if part < 0 and everything:
            part = max(wanted, key=room.__getitem__) if otherwise is None else otherwise
        if part >= 0:
            room[part] -= count
        placed.append(part)
    if everything:
        _fill_empty(placed, counts, wanted)
    part_of = np.empty(len(counts), np.int64)
    part_of[order] = placed
    return part_of[group]


def _shared_out(room: list[int], left: int) -> list[int]:
    """Return the room of each part for `left` molecules, reduced in proportion if there is room for more than these."""
    free = np.maximum(room, 0)
    if free.sum() <= left:
        return room
    shares, rest = np.divmod(free * left, free.sum())
    shares[np.argsort(-rest, kind="stable")[: left - shares.sum()]] += 1
    return [int(share) for share in shares]


def _fill_empty(placed: list[int], counts: Sequence[int], wanted: Sequence[int]) -> None:
    """Give a part without groups the smallest group of the part that has the most groups, if that part has at least two."""
    for empty in wanted:
        if empty not in placed:
            donor = max(wanted, key=placed.count)
            if placed.count(donor) > 1:
                placed[min((group for group, part in enumerate(placed) if part == donor), key=counts.__getitem__)] = empty
