"""Puts features of atoms and bonds that come with a data set behind those of the featuriser."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeVar

import numpy as np

from molgcn.data.featurizers import get_featurizer
from molgcn.data.molecule_set import MoleculeSet
from molgcn.data.packing import encode_rows
from molgcn.data.row_matrices import RowMatrices, read_row_matrices
from molgcn.data.rows import skipped_rows
from molgcn.errors import UserError, counted, listed, shown

if TYPE_CHECKING:
    from molgcn.data.config import DatasetConfig

_Set = TypeVar("_Set", bound=MoleculeSet)
PREFIXES = {"atom": "atom_feature", "bond": "bond_feature"}
"""What the names of own features start with where their file names none."""


def with_features_of_files(molecules: _Set, config: DatasetConfig, title: str, num_rows: int, kind: str) -> _Set:
    """Return the molecules of a source of so many rows with the features of `atom_features_path` and `bond_features_path`.

    With `dataset.on_error=skip`, molecules to which their features do not belong are left out.
    """
    given: dict[str, RowMatrices | None] = {"atom": None, "bond": None}
    for of, path in config.feature_files.items():
        key = f"dataset.{of}_features_path"
        given[of] = matrices = read_row_matrices(path, key, PREFIXES[of])
        matrices.check_rows(num_rows, f"{key}={path}", title, "for rows that are left out")
    if not config.feature_files:
        return molecules
    atoms, bonds = (None if one is None else one.take(molecules.rows) for one in given.values())
    found, reasons = with_own_features(molecules, atoms, bonds)
    keys = " and ".join(f"dataset.{of}_features_path={path}" for of, path in config.feature_files.items())
    advice = f"Correct {keys}, or leave such rows out with dataset.on_error=skip, which counts and lists them."
    skipped = skipped_rows(molecules, reasons, config.on_error, title, kind, advice)
    assert found is not None
    return replace(found, skipped=skipped)


def check_own_features(width: int | None, names: Sequence[str], of: str, option: str, where: str = "") -> None:
    """Raise UserError unless the own features that are given are those that a model takes.

    Args:
        width: the number of columns that are given; None where nothing is given.
        names: the names of the columns that the model was trained with.
        of: what they describe: "atom" or "bond".
        option: the key or argument that gives them, as "atom_features=<file.npz>".
        where: the key and its value, for a message about the number of columns.
    """
    if not names and width is not None:
        raise UserError(f"The model was trained with no own features of {of}s. Leave out {option.partition('=')[0]}=.")
    if names and width != len(names):
        there = "" if width is None else f", and {where} has {counted(width, 'column')}"
        raise UserError(
            f"The model was trained with {counted(len(names), 'own feature')} of {of}s ({listed(names)}){there}. Give {option}, which has "
            "a matrix of them for each molecule."
        )


def with_own_features(molecules: _Set, atoms: RowMatrices | None, bonds: RowMatrices | None) -> tuple[_Set | None, dict[int, str]]:
    """Return the molecules with further features of atoms and bonds, behind those that they have.

    Args:
        molecules: M molecules, with `bond_number` where features of bonds are given.
        atoms: M matrices with a row for each atom, or None.
        bonds: M matrices with a row for each bond, in RDKit's order, or None. Both directions of a bond get its row.

    Returns:
        - the molecules whose features have the right number of rows and are finite, or None where there is none.
        - the reason for each of the others, by its position.
    """
    reasons: dict[int, str] = {}
    for of, given, counts in (("bond", bonds, np.diff(molecules.edge_ptr) // 2), ("atom", atoms, molecules.num_nodes_per_graph)):
        if given is not None:
            reasons |= _unusable(given, counts, of, molecules.features)
    kept = np.setdiff1d(np.arange(len(molecules)), list(reasons))
    if not len(kept):
        return None, reasons
    found = molecules[kept] if reasons else molecules
    if atoms is not None:
        x, table = _behind(found.node_features(), atoms.take(kept).values, "atom")
        found = replace(found, x=x, table=table, atom_feature_names=atoms.names)
    if bonds is not None:
        assert found.bond_number is not None
        own, directed = bonds.take(kept), np.diff(found.edge_ptr)
        values = own.values[np.repeat(own.offsets[:-1], directed) + found.bond_number]
        computed = np.empty((found.num_edges, 0), np.float32) if found.edge_attr is None else found.edge_features()
        edge_attr, edge_table = _behind(computed, values, "bond")
        found = replace(found, edge_attr=edge_attr, edge_table=edge_table, bond_feature_names=bonds.names)
    return found, dict(sorted(reasons.items()))


def _behind(computed: np.ndarray, own: np.ndarray, of: Literal["atom", "bond"]) -> tuple[np.ndarray, np.ndarray | None]:
    """Return feature rows with own features behind those that were computed, as codes and their table or as rows and None."""
    rows = np.concatenate([computed, own], axis=1, dtype=np.float32)
    return encode_rows(rows, of) or (rows, None)


def _unusable(given: RowMatrices, counts: np.ndarray, of: str, features: str | None) -> dict[int, str]:
    """Return the reason for each molecule whose features of atoms or bonds (`of`) cannot be used, by its position."""
    sizes = given.sizes
    infinite, column = np.nonzero(~np.isfinite(given.values))
    places = np.searchsorted(given.offsets, infinite, side="right") - 1
    reasons = {
        place: f"its {of} feature '{shown(given.names[column])}' of {of} {row - given.offsets[place]} is not a finite number"
        for place, row, column in zip(places[::-1].tolist(), infinite[::-1].tolist(), column[::-1].tolist(), strict=True)
    }
    for place in np.flatnonzero(sizes != counts).tolist():
        size = counted(int(sizes[place]), "row")
        reasons[place] = f"its {of} features have {size}, and it has {counted_of(int(counts[place]), of, features)}"
    return reasons


def counted_of(count: int, of: str, features: str | None) -> str:
    """Return the number of a molecule's atoms or bonds (`of`) as text, with what becomes of hydrogens with these features."""
    text = counted(count, of)
    if features is None:
        return text
    featurizer = get_featurizer(features)
    explicit, added = featurizer.hydrogens == "explicit", " explicit_hydrogens=true" if featurizer.hydrogens_added else ""
    atoms = "hydrogens are atoms, behind the heavy ones as Chem.AddHs adds them" if explicit else "hydrogens are counted, no atoms"
    return f"{text} with features={featurizer.name}{added}, where {atoms}"
