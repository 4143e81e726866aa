"""A split by a seeded shuffle of molecules or of whole groups."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from molgcn.data.splits.groups import place_groups
from molgcn.data.splits.parts import Split, as_split, refuse_empty
from molgcn.data.splits.sizes import large_size, split_sizes


def random_split(
    num_molecules: int,
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    seed: int = 0,
    groups: np.ndarray | None = None,
    kind: str = "groups of copies",
) -> Split:
    """Shuffle molecules with NumPy's PCG64 generator and cut them into parts. The same seed gives the same split on every machine.

    Args:
        num_molecules: number of molecules.
        fractions: fractions or sizes of the parts, see :func:`~molgcn.data.splits.sizes.split_sizes`.
        seed: seed of the shuffle.
        groups: int [num_molecules], equal for molecules that stay in one part. Sizes then follow `fractions` as closely as whole groups
            allow. Groups larger than half of the smaller one of validation and test are placed first. None keeps no molecules together.
        kind: name of the groups, for messages.

    Returns:
        Sorted int64 positions for "train", "val" and "test".

    Raises:
        UserError: when fractions are not valid (:func:`~molgcn.data.splits.sizes.split_sizes`), or too few groups leave a part empty.
    """
    sizes = split_sizes(num_molecules, fractions)
    order = np.random.default_rng(seed).permutation(num_molecules)
    groups = np.arange(num_molecules) if groups is None else groups
    _, first, place, counts = np.unique(groups[order], return_index=True, return_inverse=True, return_counts=True)
    large = counts > large_size(sizes)
    in_order = np.lexsort((first, ~large))  # large groups first, then the others in shuffled order
    part_of = np.empty(len(counts), np.int64)
    part_of[in_order] = place_groups(counts[in_order].tolist(), sizes, num_molecules, int(large.sum()))
    placed = np.empty(num_molecules, np.int64)
    placed[order] = part_of[place]
    split = as_split(placed)
    why = f"{num_molecules} molecules are only {len(counts)} {kind} that stay together. Use more, or other fractions"
    refuse_empty(split, sizes, why)
    return split
