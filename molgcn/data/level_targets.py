"""Reads targets of atoms and of bonds: a JSON list in a cell for each molecule, or a matrix for each molecule in a .npz file."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from molgcn.data.levels import Level, bonds_in_order
from molgcn.data.own_features import counted_of
from molgcn.data.packed import PackedMolecules
from molgcn.data.row_matrices import RowMatrices, read_row_matrices
from molgcn.data.rows import skipped_rows
from molgcn.data.tables import is_missing
from molgcn.errors import UserError, counted, shown

if TYPE_CHECKING:
    from molgcn.data.config import DatasetConfig
    from molgcn.data.sources.base import RawMolecules


@dataclass(frozen=True)
class GivenTargets:
    """The targets of atoms and bonds that a configuration names."""

    names: dict[Level, tuple[str, ...]]  # the names of the targets by level
    files: dict[Level, RowMatrices]  # the matrices of those levels whose targets are in a file
    units: tuple[str, ...] = ()  # the units of the targets of all levels, "" for none

    @classmethod
    def of(cls, config: DatasetConfig, others: Sequence[str]) -> GivenTargets:
        """Read the files of targets, whose names must differ from those of `others`, the targets of molecules."""
        names: dict[Level, tuple[str, ...]] = {}
        files: dict[Level, RowMatrices] = {}
        for of in config.levels:
            if path := getattr(config, f"{of}_targets_path"):
                files[of] = read_row_matrices(Path(path).expanduser(), f"dataset.{of}_targets_path", f"{of}_target")
                names[of] = files[of].names
            else:
                names[of] = tuple(getattr(config, f"{of}_targets"))
        given = [*others, *(name for own in names.values() for name in own)]
        if twice := [name for name in given if given.count(name) > 1]:
            raise UserError(f"Two targets are named '{shown(twice[0])}'. Give each a name of its own, in a .npz file by an array `names`.")
        units = config.given("units")
        return cls(names, files, tuple(units.get(name, "") for own in names.values() for name in own))

    @property
    def all_names(self) -> tuple[str, ...]:
        """The names of all targets, those of atoms first."""
        return tuple(name for names in self.names.values() for name in names)


def with_level_targets(
    molecules: PackedMolecules, given: GivenTargets, raw: RawMolecules, config: DatasetConfig, title: str
) -> PackedMolecules:
    """Return molecules of a source's rows with the targets of atoms and bonds that are given for them.

    A molecule whose lists have another length than it has atoms or bonds is an error, or with `dataset.on_error=skip` left out. An empty
    cell, and a matrix without numbers, say that none of the molecule's values is known.
    """
    reasons: dict[int, str] = {}
    values: dict[Level, np.ndarray] = {}
    for of, names in given.names.items():
        if of in given.files:
            matrices = given.files[of]
            matrices.check_rows(raw.num_rows, f"dataset.{of}_targets_path", title, "where nothing is known")
            found = [dict(zip(names, matrices[row].T, strict=True)) for row in molecules.rows.tolist()]
        else:
            places = np.searchsorted(raw.rows, molecules.rows).tolist()
            found = [{name: raw.lists[name][place] for name in names} for place in places]
        counts = molecules.num_nodes_per_graph if of == "atom" else np.diff(molecules.edge_ptr) // 2
        values[of] = np.full((int(counts.sum()), len(names)), np.nan, np.float32)
        first = 0
        for place, (lists, count) in enumerate(zip(found, counts.tolist(), strict=True)):
            try:
                for column, (name, one) in enumerate(lists.items()):
                    values[of][first : first + count, column] = _values(one, name, of, count, molecules.features)
            except ValueError as error:
                reasons.setdefault(place, str(error))
            first += count
    advice = "Correct it, leave the cell empty where nothing is known, or leave such rows out with dataset.on_error=skip."
    skipped = skipped_rows(molecules, reasons, config.on_error, title, raw.kind, advice)
    learned = _attached(molecules, given, values)
    kept = learned[np.setdiff1d(np.arange(len(molecules)), list(reasons))] if reasons else learned
    return replace(kept, skipped=skipped)


def _values(given: str | np.ndarray, name: str, of: Level, count: int, features: str | None) -> np.ndarray | float:
    """Return the values of a target for a molecule with so many atoms or bonds, NaN where missing; ValueError says why there are none."""
    if isinstance(given, str) and is_missing(given, of_numbers=True):
        return math.nan
    values = _parsed(given, name, of) if isinstance(given, str) else given
    if not len(values) and not isinstance(given, str):
        return math.nan
    if len(values) != count:
        said = f"its {of} target '{shown(name)}' has {counted(len(values), 'value')}"
        raise ValueError(f"{said}, and it has {counted_of(count, of, features)}")
    if np.isinf(values).any():
        raise ValueError(f"its {of} target '{shown(name)}' of {of} {np.flatnonzero(np.isinf(values))[0]} is not a finite number")
    return values


def _parsed(cell: str, name: str, of: Level) -> np.ndarray:
    try:
        values = json.loads(cell)
    except ValueError:
        values = None
    if not isinstance(values, list) or not all(value is None or type(value) in (int, float) for value in values):
        raise ValueError(
            f"its {of} target '{shown(name)}' is '{shown(cell)}', not a JSON list with a number or null for each {of}, as in [0.5, null, 2]"
        )
    with np.errstate(over="ignore"):
        return np.array([math.nan if value is None else value for value in values], np.float64).astype(np.float32)


def _attached(molecules: PackedMolecules, given: GivenTargets, values: dict[Level, np.ndarray]) -> PackedMolecules:
    """Return molecules with targets of atoms [N, A] and of bonds [E / 2, C] in RDKit's order."""
    added = len(given.all_names)
    missing = np.full((len(molecules), added), np.nan, molecules.targets.dtype)
    found = replace(
        molecules,
        targets=np.concatenate([molecules.targets, missing], axis=1),
        target_names=(*molecules.target_names, *given.all_names),
        target_units=(*molecules.target_units, *given.units),
        atom_targets=values.get("atom"),
    )
    if "bond" in values:
        directed = np.full((molecules.num_edges, values["bond"].shape[1]), np.nan, np.float32)
        directed[bonds_in_order(molecules)[0]] = values["bond"]
        found = replace(found, bond_targets=directed)
    return found
