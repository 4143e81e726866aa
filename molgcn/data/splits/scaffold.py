"""A split that keeps molecules of one Bemis-Murcko scaffold in one part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from molgcn.data.scaffolds import murcko_scaffolds
from molgcn.data.splits.groups import place_groups
from molgcn.data.splits.parts import Split, as_split, refuse_empty
from molgcn.data.splits.sizes import large_size, split_sizes


def scaffold_groups(smiles: Sequence[str], num_workers: int | None = None) -> np.ndarray:
    """Return the number of each molecule's scaffold, int64 [M], in alphabetical order of the scaffolds' SMILES.

    Args:
        smiles: M SMILES. Molecules without rings share the empty scaffold.
        num_workers: worker processes for the scaffolds.
    """
    scaffolds = murcko_scaffolds(smiles, num_workers)
    place = {scaffold: number for number, scaffold in enumerate(sorted(set(scaffolds)))}
    return np.array([place[scaffold] for scaffold in scaffolds], np.int64)


def scaffold_split(scaffolds: np.ndarray, fractions: Sequence[float] = (0.8, 0.1, 0.1), seed: int = 0) -> Split:
    """Place whole scaffolds, the large ones in training, so that validation and test have many different scaffolds.

    Scaffolds larger than half of the smaller one of validation and test go to training. The others are shuffled by `seed` and fill
    training, validation and test in this order. Sizes follow `fractions` as closely as whole scaffolds allow. If scaffolds that are too
    large for training leave fewer molecules than planned, all parts get their share of the rest. Sizes that leave some molecules unused are
    never exceeded.

    Args:
        scaffolds: int [M], equal for molecules that stay in one part, see :func:`scaffold_groups`.
        fractions: fractions or sizes of the parts, see :func:`~molgcn.data.splits.sizes.split_sizes`.
        seed: seed of the shuffle.

    Returns:
        Sorted int64 positions for "train", "val" and "test".

    Raises:
        UserError: when fractions are not valid (:func:`~molgcn.data.splits.sizes.split_sizes`), or too few scaffolds leave a part empty.
    """
    sizes = split_sizes(len(scaffolds), fractions)
    names, place, counts = np.unique(scaffolds, return_inverse=True, return_counts=True)
    is_large = counts > large_size(sizes)
    by_size = np.argsort(-counts, kind="stable")
    large, small = by_size[is_large[by_size]], by_size[~is_large[by_size]].tolist()
    np.random.default_rng(seed).shuffle(small)
    in_order = np.array([*large.tolist(), *small])
    part_of = np.empty(len(names), np.int64)
    part_of[in_order] = place_groups(counts[in_order].tolist(), sizes, len(scaffolds), len(large), otherwise=0)
    split = as_split(part_of[place])
    why = f"{len(scaffolds)} molecules have only {len(names)} different scaffolds. Use split=random, or more molecules"
    refuse_empty(split, sizes, why)
    return split
