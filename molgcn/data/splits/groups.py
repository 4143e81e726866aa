"""Groups of molecules that stay together: which they are, and the part that each one goes to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def join_groups(labels: np.ndarray, copies: np.ndarray | None) -> np.ndarray:
    """Join groups that share a copy of a molecule.

    Args:
        labels: int [M], equal for molecules of one group.
        copies: int [M], equal for copies of a molecule; None leaves the groups as they are.

    Returns:
        int [M], of each molecule the least label of the groups that copies connect with its own.
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
    """Return the number of the part that each group goes to, in turn: the first one with room for it.

    Where the large groups leave fewer molecules than the parts have room for, as a huge one does, all parts get their share of these.

    Args:
        counts: molecules of each group, first those of the large ones.
        sizes: molecules of each part; 0 for a part that is not wanted.
        num_molecules: in all; where parts leave some of them unused, groups that fit nowhere get -1, else no part stays empty as long as
            another has two groups.
        num_large: how many groups are large; None shares nothing out.
        otherwise: the part for what fits nowhere; None takes the one with most room.
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
    """Return the room of each part for `left` molecules: less in proportion where there is room for more than these."""
    free = np.maximum(room, 0)
    if free.sum() <= left:
        return room
    shares, rest = np.divmod(free * left, free.sum())
    shares[np.argsort(-rest, kind="stable")[: left - shares.sum()]] += 1
    return [int(share) for share in shares]


def _fill_empty(placed: list[int], counts: Sequence[int], wanted: Sequence[int]) -> None:
    """Gives a part without a group the smallest one of the part that has most, as long as that keeps another."""
    for empty in wanted:
        if empty not in placed:
            donor = max(wanted, key=placed.count)
            if placed.count(donor) > 1:
                placed[min((group for group, part in enumerate(placed) if part == donor), key=counts.__getitem__)] = empty
