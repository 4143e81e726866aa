"""Reports molecules that a set holds more than once, and merges them into one (`dataset.duplicates`)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from xxhash import xxh3_64_intdigest

from molgcn.data.identity import first_copies
from molgcn.data.packed import PackedMolecules
from molgcn.data.rows import RowNames
from molgcn.data.segments import pointers
from molgcn.errors import UserError, counted, shown

log = logging.getLogger(__name__)

MERGES = ("first", "mean", "median")  # values of dataset.duplicates that leave one molecule of each group
_LISTED = 3


def report_repeats(molecules: PackedMolecules, title: str, standardize: str = "none") -> None:
    """Log how many molecules repeat another one, and by how much their labels disagree.

    Nothing is logged for a set without repeats. Standardising molecules may have made one of several.
    """
    group, counts = _groups(molecules)
    repeats = len(molecules) - len(counts)
    if repeats == 0:
        return
    text = f"{_repeat(molecules, repeats, standardize)} ({counted(int((counts > 1).sum()), 'group')})"
    log.info("%s: %s%s", title, text, _disagreement(molecules, group, len(counts)))


def report_copies(molecules: PackedMolecules, splits: Mapping[str, np.ndarray]) -> None:
    """Warn when molecules of one part of a split have a copy in another part, and say what to do.

    Copies are what splits keep together. How many of them are not equal to a network is said.
    """

    def count(hashes: np.ndarray | None, part: str, other: str) -> int:
        assert hashes is not None
        return int(np.isin(hashes[splits[part]], hashes[splits[other]]).sum())

    def differing(copies: int, equal: int) -> str:
        left_out = "features of bonds, such as E and Z, and RDKit's chiral tags"
        return f" ({copies - equal:,} of them differ from it in what splits leave out: {left_out})" if copies > equal else ""

    copies = {part: count(molecules.hashes, part, "train") for part in ("val", "test")}
    if total := sum(copies.values()):
        equal = sum(count(molecules.exact_hashes, part, "train") for part in copies)
        advice = [] if molecules.files else ["dataset.split=random or scaffold keeps copies together (dataset.group_duplicates=true)"]
        if equal:
            advice.append(f"dataset.duplicates=first, mean or median makes one molecule of {'them' if equal == total else 'equal ones'}")
        log.warning(
            "%s of %s validation and %s of %s test molecules have a copy in the training part%s, so that errors look smaller than they "
            "are. %s",
            *(f"{count:,}" for part in copies for count in (copies[part], len(splits[part]))),
            differing(total, equal),
            "; ".join(advice),
        )
    if chosen_by := count(molecules.hashes, "test", "val"):
        log.warning(
            "%s of %s test molecules have a copy in the validation part, by which weights are chosen%s",
            *(f"{chosen_by:,}", f"{len(splits['test']):,}", differing(chosen_by, count(molecules.exact_hashes, "test", "val"))),
        )


def refuse_repeats(molecules: PackedMolecules, title: str, standardize: str = "none") -> None:
    """Raise UserError for a set in which a molecule repeats another one, naming the first such rows."""
    first = _first_alike(molecules)
    repeats = np.flatnonzero(first != np.arange(len(first)))
    if len(repeats) == 0:
        return
    named = [f"{_row(molecules, index)} repeats {_row(molecules, first[index])}" for index in repeats[:_LISTED].tolist()]
    raise UserError(
        f"{title}: {_repeat(molecules, len(repeats), standardize)} (rows counted from 0): "
        f"{'; '.join(named)}{', and so on' if len(repeats) > _LISTED else ''}. dataset.duplicates=error allows none. Correct "
        "the data, or use dataset.duplicates=keep, first, mean or median."
    )


def merge_repeats(molecules: PackedMolecules, how: str) -> PackedMolecules:
    """Return the set with the first molecule of each group of equal molecules, with its row and SMILES.

    Labels are those of the first molecule (`how="first"`), or the "mean" or "median" of each target's known labels in the group. Bounds
    have no mean or median.
    """
    group, counts = _groups(molecules)
    if len(counts) == len(molecules):
        return molecules
    if molecules.bounds is not None and how != "first":
        raise UserError(f"dataset.duplicates={how} does not go with bounds, which have no {how}. Use first, or dataset.bounded=false.")
    merged = molecules[np.unique(group, return_index=True)[1]]
    if how == "first":
        return merged
    import pandas as pd

    targets = pd.DataFrame(molecules.targets.astype(np.float64)).groupby(group).agg(how).to_numpy()
    return replace(merged, targets=targets.astype(molecules.targets.dtype))


def _first_alike(molecules: PackedMolecules) -> np.ndarray:
    """Return the position of the first molecule that equals each molecule and has the same descriptors, int64 [M]."""
    assert molecules.exact_hashes is not None
    if molecules.descriptors is None:
        return first_copies(molecules.exact_hashes)
    conditions = np.array([xxh3_64_intdigest(row.tobytes()) for row in molecules.descriptors], np.uint64)
    _, first, place = np.unique(np.stack([molecules.exact_hashes, conditions], 1), axis=0, return_index=True, return_inverse=True)
    return first[place.ravel()]


def _groups(molecules: PackedMolecules) -> tuple[np.ndarray, np.ndarray]:
    """Return the group of each molecule, numbered in order of first appearance, and the number of molecules in each group."""
    _, group, counts = np.unique(_first_alike(molecules), return_inverse=True, return_counts=True)
    return group, counts


def _repeat(molecules: PackedMolecules, count: int, standardize: str) -> str:
    verb = "molecule repeats" if count == 1 else "molecules repeat"
    after = "" if standardize == "none" else f" after standardize={standardize}"
    return f"{count:,} {verb} another one as features={molecules.features} sees them{after}"


def _disagreement(molecules: PackedMolecules, group: np.ndarray, num_groups: int) -> str:
    """Return in words by how much the labels of equal molecules disagree, with an example, or "" if they agree."""
    ordered = molecules.targets[np.argsort(group, kind="stable")].astype(np.float64)
    starts = pointers(np.bincount(group, minlength=num_groups))[:-1]
    spread = np.fmax.reduceat(ordered, starts, axis=0) - np.fmin.reduceat(ordered, starts, axis=0)  # NaN where no label is known
    disagree = spread > 0
    if not disagree.any():
        return ""
    targets = np.flatnonzero(disagree.any(axis=0)).tolist()
    said = []
    for target in targets[:_LISTED]:
        apart = spread[disagree[:, target], target]
        unit = f" {molecules.target_units[target]}" if molecules.target_units[target] else ""
        said.append(f"{molecules.target_names[target]} by up to {apart.max():.3g}{unit} (median {np.median(apart):.3g})")
    more = f" and {len(targets) - _LISTED} more targets" if len(targets) > _LISTED else ""
    members = np.flatnonzero(group == np.nanargmax(spread[:, targets[0]]))
    values = molecules.targets[members, targets[0]]
    example = " and ".join(_row(molecules, int(members[choose(values)])) for choose in (np.nanargmin, np.nanargmax))
    number = counted(int(disagree.any(axis=1).sum()), "group")
    return f"; in {number} labels disagree: {', '.join(said)}{more}, as in {example}"


def _row(molecules: PackedMolecules, index: int) -> str:
    smiles = "" if molecules.smiles is None else f" ('{shown(molecules.smiles[index])}')"
    return f"row {RowNames.of(molecules)[index]}{smiles}"
