"""Splits that cut an ordered list of molecules, and the orders: times in a column, or that of Kennard and Stone."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from molgcn.data.fingerprints import check_pairs, morgan_fingerprints, tanimoto_distances
from molgcn.data.splits.parts import IN_WORDS, Split, as_split, split_sizes
from molgcn.errors import UserError, counted, shown

log = logging.getLogger(__name__)

_BYTES_A_PAIR = 9  # the matrix, and the copy and mask in which astartes finds the largest distance


def ordered_split(
    ranks: np.ndarray,
    fractions: Sequence[float] = (0.8, 0.1, 0.1),
    groups: np.ndarray | None = None,
    newest: bool = False,
    kind: str = "copies",
) -> Split:
    """Cut molecules in order: the first ones train, the next ones validate, the last ones test.

    Molecules of equal rank stay in one part. Each cut is at the change of rank that is nearest to it, and no part stays empty while there
    are ranks for it. Sizes that leave some molecules unused are never exceeded. Molecules of equal `groups` [M] all have the lowest rank
    among them. With `newest` the first molecules, and not the last ones, are left out. Messages name what molecules of equal rank have in
    common (`kind`).
    """
    sizes = split_sizes(len(ranks), fractions)
    _, rank = np.unique(ranks, return_inverse=True)
    if groups is not None:
        _, group = np.unique(groups, return_inverse=True)
        lowest = np.full(len(ranks), len(ranks))
        np.minimum.at(lowest, group, rank)
        rank = lowest[group]
    _, block, counts = np.unique(rank, return_inverse=True, return_counts=True)
    why = (
        f"{len(ranks):,} molecules are {counted(len(counts), 'group')} of equal {kind} that stay together, the largest of {counts.max():,}"
        ". Use other dataset.split_fractions, perhaps 0 for validation or test"
    )
    return as_split(_place_blocks(counts, sizes, newest)[block], sizes, why)


def _place_blocks(counts: np.ndarray, sizes: Sequence[int], newest: bool) -> np.ndarray:
    """Return the number of the part of each block of so many molecules, int64 [B], -1 for a block that is left out."""
    wanted = [part for part, size in enumerate(sizes) if size]
    ends = np.cumsum(counts)
    placed = np.full(len(counts), -1)
    if sum(sizes) < ends[-1]:
        backwards = slice(None, None, -1 if newest else 1)
        counts, first = counts[backwards], 0
        for part in wanted[backwards]:
            last = first + int(np.searchsorted(np.cumsum(counts[first:]), sizes[part], side="right"))
            placed[backwards][first:last] = part
            first = last
        return placed
    first = 0
    for number, part in enumerate(wanted, start=1):
        most = len(counts) - (len(wanted) - number)  # each part behind needs a block
        distance = np.abs(ends[first:most] - sum(sizes[: part + 1]))
        last = most - int(np.argmin(distance[::-1])) if len(distance) else first
        placed[first:last] = part
        first = last
    return placed


def column_times(cells: Sequence[str], column: str, rows: Sequence[object] | np.ndarray) -> np.ndarray:
    """Return the times in the cells of a column, float64 or datetime64 [M].

    Cells are all numbers, such as years, or all ISO dates with or without a time of day: 2021-03, 2021-03-04, 2021-03-04T12:30Z.
    """
    import pandas as pd

    stripped = pd.Series([cell.strip() for cell in cells])
    numbers = pd.to_numeric(stripped, errors="coerce").to_numpy(np.float64)
    values: np.ndarray = numbers
    kind, wrong = "a number, as the first one is", ~np.isfinite(numbers)
    if wrong[0]:
        times = pd.to_datetime(stripped, format="ISO8601", errors="coerce", utc=True)
        values = times.to_numpy("datetime64[us]")
        kind = "a number or an ISO date such as 2021-03-04" if np.isnat(values[0]) else "an ISO date, as the first one is"
        wrong = np.isnat(values) | ~wrong
    if wrong.any():
        place = int(np.argmax(wrong))
        raise UserError(
            f"Column '{shown(column)}', row {rows[place]} (counted from 0, without the header) says '{shown(cells[place])}'; "
            f"expected {kind}. dataset.split=time needs one for every molecule: correct the cell, or leave the row out of the file."
        )
    return values


def report_times(split: Split, times: np.ndarray, cells: Sequence[str], column: str) -> None:
    """Log the first and the last time in each part of a split, and how many molecules follow an older copy into an earlier part."""
    spans, moved, begin = [], 0, None
    for part, places in reversed([(part, places) for part, places in split.items() if len(places)]):
        first, last = (cells[places[choose(times[places])]].strip() for choose in (np.argmin, np.argmax))
        spans.append(f"{IN_WORDS[part]} {shown(first)}" + (f" to {shown(last)}" if first != last else ""))
        moved += 0 if begin is None else int((times[places] >= begin).sum())
        begin = times[places].min()
    copies = f"; {counted(moved, 'molecule')} with an older copy, by which both are placed" if moved else ""
    log.info("Column '%s': %s%s", shown(column), ", ".join(reversed(spans)), copies)


def kennard_stone_ranks(smiles: Sequence[str], num_workers: int | None = None) -> np.ndarray:
    """Return the rank of each molecule in the order of Kennard and Stone (Technometrics 11, 137, 1969), int64 [M], by astartes.

    The first two molecules have the largest Tanimoto distance of their Morgan fingerprints. Each further molecule is the one farthest from
    all before it.
    """
    try:
        from astartes.utils.fast_kennard_stone import fast_kennard_stone
    except ImportError:
        raise UserError(
            "dataset.split=kennard_stone needs the package astartes: pip install molgcn[splits]. dataset.split=kmeans and butina need none."
        ) from None
    count = len(smiles)
    if count < 2:
        return np.arange(count)
    check_pairs(count, _BYTES_A_PAIR, "kennard_stone")
    matrix = np.empty((count, count), np.float32)
    for rows, distances in tanimoto_distances(morgan_fingerprints(smiles, num_workers)):
        matrix[rows] = distances
    ranks = np.empty(count, np.int64)
    ranks[fast_kennard_stone(matrix)] = np.arange(count)
    return ranks
