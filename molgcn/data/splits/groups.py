"""Groups of molecules that stay together: the part that each one goes to."""

from __future__ import annotations

from collections.abc import Sequence

from molgcn.data.splits.parts import PARTS


def place_groups(counts: Sequence[int], sizes: Sequence[int], num_molecules: int, otherwise: int | None = None) -> list[int]:
    """The number of the part that each group goes to, in turn: the first one with room for it.

    Args:
        counts: molecules of each group.
        sizes: molecules of each part.
        num_molecules: in all; where parts leave some of them unused, groups that fit nowhere get -1.
        otherwise: the part for what fits nowhere; None takes the one with most room.
    """
    room, placed = list(sizes), []
    for count in counts:
        part = next((part for part, left in enumerate(room) if count <= left), -1)
        if part < 0 and sum(sizes) == num_molecules:
            part = room.index(max(room)) if otherwise is None else otherwise
        if part >= 0:
            room[part] -= count
        placed.append(part)
    return placed


def fill_empty(placed: list[int], counts: Sequence[int]) -> None:
    """Gives a part without a group the smallest one of the part that has most, as long as that keeps another."""
    for empty in range(len(PARTS)):
        if empty not in placed:
            donor = max(range(len(PARTS)), key=placed.count)
            if placed.count(donor) > 1:
                placed[min((group for group, part in enumerate(placed) if part == donor), key=counts.__getitem__)] = empty
