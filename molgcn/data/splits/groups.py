"""Joins groups of molecules that stay in one part, and places each group in a part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def join_groups(labels: np.ndarray, copies: np.ndarray | None) -> np.ndarray:
    """Join groups that share a copy of a molecule.

    Args:
        labels: int [M], equal for molecules of one group.
        copies: int [M], equal for copies of a molecule. None leaves the groups as they are.

    Returns:
        The least label of the groups that copies connect with each molecule's own group, int [M].
    """
    if copies is None:
        return labels
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    names, group = np.unique(labels, return_inverse=True)
    values, copy = np.unique(copies, return_inverse=True)
    links = coo_array((np.ones(len(group), bool), (group, copy + len(names))), shape=(len(names) + len(values),) * 2)
    component = connected_components(links, directed=False)[1][: len(names)]
    return names[np.unique(component, return_index=True)[1][component]][group]


def place_groups(
    counts: Sequence[int], sizes: Sequence[int], num_molecules: int, num_large: int | None = None, otherwise: int | None = None
) -> list[int]:
    """Place each group, in turn, in the first part that has room for it.

    If the large groups leave fewer molecules than the parts have room for, as a huge group does, the room of all parts is reduced in
    proportion. If the sizes sum to `num_molecules`, every group is placed and no part stays empty while another one has two groups.
    Otherwise groups that do not fit are left out.

    Args:
        counts: number of molecules of each group, large groups first.
        sizes: number of molecules of each part, 0 for a part that is not wanted.
        num_molecules: number of all molecules.
        num_large: number of large groups. None does not reduce the room of parts.
        otherwise: the part for groups that do not fit. None takes the part with the most room.

    Returns:
        The number of the part of each group, -1 for a group that is left out.
    """
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
    return placed


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
