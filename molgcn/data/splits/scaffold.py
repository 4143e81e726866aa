"""A split that keeps molecules of one scaffold in one part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from molgcn.data.scaffolds import join_scaffolds, murcko_scaffolds
from molgcn.data.splits.groups import place_groups
from molgcn.data.splits.parts import PARTS, Split, refuse_empty
from molgcn.data.splits.sizes import split_sizes


def scaffold_split(
    smiles: Sequence[str],
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    num_workers: int | None = None,
    groups: np.ndarray | None = None,
) -> Split:
    """Keeps molecules of one Bemis-Murcko scaffold (J. Med. Chem. 39, 2887, 1996) in one part.

    Scaffolds that hold more than half a validation or test part go to train; the others are shuffled by `seed` and fill
    train, validation and test in that order. Molecules without rings share the empty scaffold. Sizes follow
    `fractions` as closely as whole scaffolds allow; of numbers of molecules that leave some unused none is exceeded.

    Args:
        smiles: of the molecules.
        fractions: see :func:`~molgcn.data.splits.sizes.split_sizes`.
        seed: of the shuffle.
        num_workers: worker processes for the scaffolds.
        groups: int [M], equal for molecules that are to stay in one part: scaffolds that share a group count as one.

    Returns:
        sorted int64 indices for "train", "val" and "test".

    Raises:
        UserError: see :func:`~molgcn.data.splits.sizes.split_sizes`, or when too few scaffolds leave a part empty.
    """
    sizes = split_sizes(len(smiles), fractions)
    scaffolds = murcko_scaffolds(smiles, num_workers)
    if groups is not None:
        scaffolds = join_scaffolds(scaffolds, groups)
    members: dict[str, list[int]] = {}
    for index, scaffold in enumerate(scaffolds):
        members.setdefault(scaffold, []).append(index)
    limit = min(sizes[1:]) / 2
    names = sorted(members, key=lambda name: (-len(members[name]), name))
    large = [name for name in names if len(members[name]) > limit]
    small = [name for name in names if len(members[name]) <= limit]
    np.random.default_rng(seed).shuffle(small)
    names = large + small
    part_of = dict(zip(names, place_groups([len(members[name]) for name in names], sizes, len(smiles), otherwise=0), strict=True))
    placed = np.array([part_of[scaffold] for scaffold in scaffolds])
    split = {part: np.flatnonzero(placed == number) for number, part in enumerate(PARTS)}
    refuse_empty(split, f"{len(smiles)} molecules have only {len(members)} different scaffolds. Use split=random, or more molecules")
    return split
