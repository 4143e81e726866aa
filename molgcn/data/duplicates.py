"""Reports molecules that a set holds more than once, and merges them into one (`dataset.duplicates`)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from xxhash import xxh3_64_intdigest

from molgcn.data.identity import first_copies
from molgcn.data.packed import PackedMolecules
from molgcn.data.row_names import RowNames
from molgcn.data.segments import pointers
from molgcn.errors import UserError

log = logging.getLogger(__name__)

MERGES = ("first", "mean", "median")  # values of dataset.duplicates that leave one molecule of each group
_LISTED = 3


def report_repeats(molecules: PackedMolecules, title: str) -> None:
    """Log how many molecules repeat another one, and by how much their labels disagree.

    Nothing is logged for a set without repeats.

    Args:
        molecules: a set with hashes.
        title: name of the set.
    """
    group, counts = _groups(molecules)
    repeats = len(molecules) - len(counts)
    if repeats == 0:
        return
    several = int((counts > 1).sum())
    text = f"{repeats:,} molecules repeat another one as features={molecules.features} sees them ({several:,} groups)"
    spread = _spread(molecules.targets, group, len(counts))
    disagree = spread > 0
    if disagree.any():
        said = []
        for place in np.flatnonzero(disagree.any(axis=0)):
            apart = spread[disagree[:, place], place]
            unit = f" {molecules.target_units[place]}" if molecules.target_units[place] else ""
            said.append(f"{molecules.target_names[place]} by up to {apart.max():.3g}{unit} (median {np.median(apart):.3g})")
        more = f" and {len(said) - _LISTED} more targets" if len(said) > _LISTED else ""
        text += f"; in {int(disagree.any(axis=1).sum()):,} groups labels disagree: {', '.join(said[:_LISTED])}{more}"
    log.info("%s: %s", title, text)


def report_copies(molecules: PackedMolecules, splits: Mapping[str, np.ndarray]) -> None:
    """Warn when molecules of one part of a split have a copy in another part, and say what to do.

    Args:
        molecules: a set with hashes.
        splits: positions in the set for "train", "val" and "test".
    """
    hashes = molecules.hashes
    assert hashes is not None

    def count(part: str, other: str) -> int:
        return int(np.isin(hashes[splits[part]], hashes[splits[other]]).sum())

    copies = {part: count(part, "train") for part in ("val", "test")}
    if any(copies.values()):
        drawn = "dataset.split=random or scaffold keeps copies together (dataset.group_duplicates=true); "
        log.warning(
            "%s of %s validation and %s of %s test molecules have a copy in the training part, so that errors look smaller than they are. "
            "%sdataset.duplicates=first, mean or median makes one molecule of them",
            *(f"{count:,}" for part in ("val", "test") for count in (copies[part], len(splits[part]))),
            "" if molecules.files else drawn,
        )
    if chosen_by := count("test", "val"):
        log.warning(
            "%s of %s test molecules have a copy in the validation part, by which weights are chosen",
            f"{chosen_by:,}",
            f"{len(splits['test']):,}",
        )


def refuse_repeats(molecules: PackedMolecules, title: str) -> None:
    """Refuse a set in which a molecule repeats another one.

    Args:
        molecules: a set with hashes.
        title: name of the set.

    Raises:
        UserError: when a molecule repeats another one, naming the first such rows.
    """
    assert molecules.hashes is not None
    first = _first_alike(molecules)
    repeats = np.flatnonzero(first != np.arange(len(first)))
    if len(repeats) == 0:
        return
    named = [f"{_row(molecules, index)} repeats {_row(molecules, first[index])}" for index in repeats[:_LISTED].tolist()]
    raise UserError(
        f"{title}: {len(repeats):,} molecules repeat another one as features={molecules.features} sees them (rows counted from 0): "
        f"{'; '.join(named)}{', and so on' if len(repeats) > _LISTED else ''}. dataset.duplicates=error allows none. Correct "
        "the data, or use dataset.duplicates=keep, first, mean or median."
    )


def merge_repeats(molecules: PackedMolecules, how: str) -> PackedMolecules:
    """Return the set with the first molecule of each group of equal molecules, with its row and SMILES.

    Args:
        molecules: a set with hashes.
        how: how labels are merged. "first" keeps those of the first molecule. "mean" and "median" take each target's known labels in the
            group, and are NaN where none is known.

    Raises:
        UserError: for "mean" or "median" when the set has bounds.
    """
    group, counts = _groups(molecules)
    if len(counts) == len(molecules):
        return molecules
    if molecules.bounds is not None and how != "first":
        raise UserError(f"dataset.duplicates={how} does not go with bounds, which have no {how}. Use first, or dataset.bounded=false.")
    merged = molecules[np.unique(group, return_index=True)[1]]
    if how == "first":
        return merged
    targets = np.stack([_combined(column, group, len(counts), how) for column in molecules.targets.astype(np.float64).T], axis=1)
    return replace(merged, targets=targets.astype(molecules.targets.dtype))


def _first_alike(molecules: PackedMolecules) -> np.ndarray:
    """Return the position of the first molecule that equals each molecule and has the same descriptors, int64 [M]."""
    assert molecules.hashes is not None
    if molecules.descriptors is None:
        return first_copies(molecules.hashes)
    conditions = np.array([xxh3_64_intdigest(row.tobytes()) for row in molecules.descriptors], np.uint64)
    _, first, place = np.unique(np.stack([molecules.hashes, conditions], 1), axis=0, return_index=True, return_inverse=True)
    return first[place.ravel()]


def _groups(molecules: PackedMolecules) -> tuple[np.ndarray, np.ndarray]:
    """Return the group of each molecule, numbered in order of first appearance, and the number of molecules in each group."""
    assert molecules.hashes is not None
    _, group, counts = np.unique(_first_alike(molecules), return_inverse=True, return_counts=True)
    return group, counts


def _spread(targets: np.ndarray, group: np.ndarray, num_groups: int) -> np.ndarray:
    """Return the largest minus the smallest known label of each group, float64 [groups, T], NaN where none is known."""
    order = np.argsort(group, kind="stable")
    starts = pointers(np.bincount(group, minlength=num_groups))[:-1]
    ordered = targets[order].astype(np.float64)
    spread: np.ndarray = np.fmax.reduceat(ordered, starts, axis=0) - np.fmin.reduceat(ordered, starts, axis=0)
    return spread


def _combined(values: np.ndarray, group: np.ndarray, num_groups: int, how: str) -> np.ndarray:
    """Return the mean or median of the known values of each group, float64 [groups], NaN where none is known."""
    known = ~np.isnan(values)
    values, group = values[known], group[known]
    counts = np.bincount(group, minlength=num_groups)
    result = np.full(num_groups, np.nan)
    some = counts > 0
    if how == "mean":
        result[some] = np.bincount(group, values, num_groups)[some] / counts[some]
    else:
        ordered = values[np.lexsort((values, group))]
        starts, counts = pointers(counts)[:-1][some], counts[some]
        result[some] = (ordered[starts + (counts - 1) // 2] + ordered[starts + counts // 2]) / 2
    return result


def _row(molecules: PackedMolecules, index: int) -> str:
    smiles = "" if molecules.smiles is None else f" ('{molecules.smiles[index]}')"
    return f"row {RowNames.of(molecules)[index]}{smiles}"
