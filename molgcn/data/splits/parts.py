"""The parts of a set, and what must hold of every split into them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from molgcn.errors import UserError

PARTS = ("train", "val", "test")
Split = dict[str, np.ndarray]


def check_split(split: Mapping[str, np.ndarray], num_molecules: int, source: str) -> None:
    """Raises:
    UserError: when a part is missing or empty, an index is out of range, or two parts share a molecule.
    """
    for part in PARTS:
        indices = split.get(part)
        if indices is None or len(indices) == 0:
            raise UserError(f"The split from {source} has no molecule in {part}. Every part needs at least one.")
        if indices.min() < 0 or indices.max() >= num_molecules:
            raise UserError(f"The split from {source} names a molecule beyond the {num_molecules} of the set, in {part}.")
    together = np.concatenate([split[part] for part in PARTS])
    values, counts = np.unique(together, return_counts=True)
    if counts.max() > 1:
        twice = int(values[counts > 1][0])
        where = [part for part in PARTS if twice in split[part]]
        raise UserError(
            f"The split from {source} has {int((counts > 1).sum())} molecules more than once, the first at position "
            f"{twice} ({' and '.join(where)}). Parts may not overlap."
        )


def refuse_empty(split: Split, why: str) -> None:
    """Raises:
    UserError: with `why`, when a part is empty.
    """
    empty = [part for part in PARTS if len(split[part]) == 0]
    if empty:
        raise UserError(f"The split leaves {' and '.join(empty)} empty: {why}.")
