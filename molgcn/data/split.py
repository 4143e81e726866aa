"""Train, validation and test: random, by scaffold, by a column, from a file, or a benchmark's own; saved with the run."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from molgcn.data.scaffolds import join_scaffolds, murcko_scaffolds
from molgcn.errors import UserError, shown
from molgcn.whole_file import whole

log = logging.getLogger(__name__)

PARTS = ("train", "val", "test")
_SPELLINGS = {"train": "train", "training": "train", "val": "val", "valid": "val", "validation": "val", "test": "test"}
Split = dict[str, np.ndarray]


def split_sizes(num_molecules: int, fractions: Sequence[float]) -> tuple[int, int, int]:
    """Numbers of molecules in train, validation and test.

    Args:
        num_molecules: how many there are.
        fractions: three fractions that sum to 1 (rounded; train takes the remainder), or three whole numbers of
            molecules, which may leave some unused.

    Raises:
        UserError: when they are neither, ask for more than there is, or leave a part empty; and when whole numbers sum to 10 or 100, as
            tenths and percentages do, but the set has not as many molecules.
    """
    numbers = tuple(fractions)
    if len(numbers) != 3 or any(not np.isfinite(number) or number < 0 for number in numbers):
        raise UserError(
            f"dataset.split_fractions={list(numbers)}: expected three numbers for train, validation and test, "
            "as in [0.8,0.1,0.1] or [10000,1000,1000]."
        )
    total = sum(numbers)
    if total in (10, 100) and total != num_molecules and all(number == int(number) for number in numbers):
        raise UserError(
            f"dataset.split_fractions={list(numbers)} sum to {total:g}, but the set has {num_molecules:,} molecules. For shares of the set "
            f"give fractions: [{','.join(f'{number / total:g}' for number in numbers)}]. For as few molecules draw them with "
            f"dataset.subset={total:g} and give the same numbers."
        )
    if abs(total - 1) < 1e-6:
        val, test = (round(number * num_molecules) for number in numbers[1:])
        sizes = (num_molecules - val - test, val, test)
    elif all(number == int(number) and number >= 1 for number in numbers):
        sizes = (int(numbers[0]), int(numbers[1]), int(numbers[2]))
    else:
        raise UserError(
            f"dataset.split_fractions={list(numbers)} sum to {total:g}. Give three fractions that sum to 1 or three whole numbers of "
            "molecules."
        )
    if sum(sizes) > num_molecules or min(sizes) < 1:
        raise UserError(
            f"A set of {num_molecules} molecules cannot be split into train, validation and test by "
            f"dataset.split_fractions={list(numbers)} ({sizes[0]}, {sizes[1]} and {sizes[2]} molecules). Every part "
            "needs at least one; give more molecules or other fractions."
        )
    return sizes


def random_split(
    num_molecules: int, fractions: Sequence[float] = (0.8, 0.1, 0.1), seed: int = 0, groups: np.ndarray | None = None
) -> Split:
    """Shuffles with NumPy's PCG64 generator and cuts; the same seed gives the same split on every machine.

    Args:
        num_molecules: how many there are.
        fractions: see :func:`split_sizes`.
        seed: of the shuffle.
        groups: int [num_molecules], equal for molecules that are to stay in one part; None where each may go anywhere. Sizes then follow
            `fractions` as closely as whole groups allow: groups of more than half a validation or test part are placed first.

    Returns:
        sorted int64 indices for "train", "val" and "test".

    Raises:
        UserError: see :func:`split_sizes`, or when too few groups leave a part empty.
    """
    sizes = split_sizes(num_molecules, fractions)
    order = np.random.default_rng(seed).permutation(num_molecules)
    groups = np.arange(num_molecules) if groups is None else groups
    _, first, place, counts = np.unique(groups[order], return_index=True, return_inverse=True, return_counts=True)
    large = counts > min(sizes[1:]) / 2
    rank = np.empty(len(counts), np.int64)  # of each group: the large ones first, then as the shuffle meets them
    rank[np.lexsort((first, ~large))] = np.arange(len(counts))
    together = order[np.argsort(rank[place], kind="stable")]
    in_order = counts[np.argsort(rank)]
    placed = _place(in_order.tolist(), sizes, num_molecules)
    if sum(sizes) == num_molecules:
        _fill_empty(placed, in_order.tolist())
    part_of = np.repeat(placed, in_order)
    split = {part: np.sort(together[part_of == number]) for number, part in enumerate(PARTS)}
    _refuse_empty(
        split, f"{num_molecules} molecules are only {len(counts)} groups of copies that stay together. Use more, or other fractions"
    )
    return split


def _place(counts: Sequence[int], sizes: Sequence[int], num_molecules: int, otherwise: int | None = None) -> list[int]:
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


def _fill_empty(placed: list[int], counts: Sequence[int]) -> None:
    """Gives a part without a group the smallest one of the part that has most, as long as that keeps another."""
    for empty in range(len(PARTS)):
        if empty not in placed:
            donor = max(range(len(PARTS)), key=placed.count)
            if placed.count(donor) > 1:
                placed[min((group for group, part in enumerate(placed) if part == donor), key=counts.__getitem__)] = empty


def _refuse_empty(split: Split, why: str) -> None:
    empty = [part for part in PARTS if len(split[part]) == 0]
    if empty:
        raise UserError(f"The split leaves {' and '.join(empty)} empty: {why}.")


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
        fractions: see :func:`split_sizes`.
        seed: of the shuffle.
        num_workers: worker processes for the scaffolds.
        groups: int [M], equal for molecules that are to stay in one part: scaffolds that share a group count as one.

    Returns:
        sorted int64 indices for "train", "val" and "test".

    Raises:
        UserError: see :func:`split_sizes`, or when too few scaffolds leave a part empty.
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
    part_of = dict(zip(names, _place([len(members[name]) for name in names], sizes, len(smiles), otherwise=0), strict=True))
    placed = np.array([part_of[scaffold] for scaffold in scaffolds])
    split = {part: np.flatnonzero(placed == number) for number, part in enumerate(PARTS)}
    _refuse_empty(split, f"{len(smiles)} molecules have only {len(members)} different scaffolds. Use split=random, or more molecules")
    return split


def column_split(values: Sequence[object], column: str = "split", rows: Sequence[int] | np.ndarray | None = None) -> Split:
    """Splits by a column that says train, val (valid, validation) or test; an empty cell leaves the molecule out.

    Args:
        values: the column's cells, one a row of the source.
        column: its name, for messages.
        rows: int [M], the source row of each molecule, where rows were skipped; by default every row is a molecule.

    Raises:
        UserError: for another value, or when a part is empty.
    """
    names = []
    for row in range(len(values)) if rows is None else rows:
        value = values[row]
        text = "" if value is None or value != value else str(value).strip().lower()
        if text and text not in _SPELLINGS:
            raise UserError(
                f"Column '{column}', row {row} (counted from 0, without the header) says '{shown(str(value))}'; expected train, val "
                "(or valid, validation), test or an empty cell."
            )
        names.append(_SPELLINGS.get(text, ""))
    split = {part: np.flatnonzero(np.array(names) == part) for part in PARTS}
    check_split(split, len(names), f"column '{column}'")
    return split


def rows_to_split(wanted: Mapping[str, np.ndarray], rows: np.ndarray, source: str) -> Split:
    """Positions in a packed set of the source rows that a split names; rows that were skipped are left out.

    Args:
        wanted: row numbers of the source for train, val and test.
        rows: int64 [M], the source row of each molecule.
        source: name of the split, for messages.

    Raises:
        UserError: when parts overlap or are empty.
    """
    order = np.argsort(rows, kind="stable")
    split = {}
    for part in PARTS:
        asked = np.asarray(wanted[part], np.int64)
        at = np.searchsorted(rows, asked, sorter=order).clip(max=len(rows) - 1)
        positions = order[at]
        split[part] = positions[rows[positions] == asked]
    absent = sum(len(wanted[part]) - len(split[part]) for part in PARTS)
    if absent:
        log.warning("The split from %s names %s rows that are not in the set (left out, or outside its subset)", source, f"{absent:,}")
    check_split(split, len(rows), source)
    return split


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


def save_split(path: str | Path, split: Mapping[str, np.ndarray], rows: np.ndarray) -> None:
    """Writes a split as JSON of source row numbers, readable by `split=file dataset.split_file=<path>`."""
    path = Path(path)
    text = json.dumps({part: rows[split[part]].tolist() for part in PARTS})
    with whole(path) as temporary, open(temporary, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def load_split(path: str | Path) -> Split:
    """Row numbers of the source for train, val and test, from a JSON file as :func:`save_split` writes it.

    Raises:
        UserError: when the file is missing or holds something else.
    """
    try:
        content = json.loads(Path(path).expanduser().read_text("utf-8"))
    except OSError as error:
        raise UserError(f"dataset.split_file={path} cannot be read: {error.strerror}. Give a JSON file.") from error
    except ValueError as error:
        raise UserError(f"dataset.split_file={path} is not JSON: {error}. {_FORMAT}") from error
    try:
        split = {part: np.array(content[part]) for part in PARTS}
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UserError(f"dataset.split_file={path} does not name train, val and test. {_FORMAT}") from error
    for part, rows in split.items():
        if rows.ndim != 1 or (len(rows) and rows.dtype.kind not in "iu"):
            raise UserError(f"dataset.split_file={path}: '{part}' is not a list of whole numbers. {_FORMAT}")
    return {part: rows.astype(np.int64) for part, rows in split.items()}


_FORMAT = 'Expected {"train": [rows], "val": [rows], "test": [rows]}, rows of the data file counted from 0.'
