"""Turns molecules into flat arrays, with little work for each molecule and the rest done for many molecules at once.

Implicit hydrogens are never made into RDKit atoms. The number of hydrogens of each heavy atom describes them fully.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from molgcn.data.featurizers import Featurizer, ReactionFeaturizer
from molgcn.data.featurizers.base import UnsupportedAtomError
from molgcn.data.featurizers.fields import ATOM_STEREO, BOND_STEREO, BOND_TYPES, AtomFields, BondFields
from molgcn.data.mol_bytes import MolBytes, mol_bytes_reader, read_atom, with_labels
from molgcn.data.molecules import InvalidMoleculeError, kekulized
from molgcn.data.packing import MAX_ATOMS
from molgcn.data.reactions import ABSENT_ATOM, ABSENT_BOND, ATOM_SIDES, BOND_SIDES, Reaction, condensed, unchanged
from molgcn.data.segments import pointers, segment_index

_HIDDEN_HS = 1  # byte of a packed atom
_BOND_TO_HYDROGEN = BondFields(BOND_TYPES.index("SINGLE")).packed()


class GraphArrays:
    """Collects molecules, then gives each atom and, if wanted, each bond a code into a table of distinct feature rows.

    Args:
        featurizer: what computes the rows.
        bonds: whether bonds get rows, if the featuriser has any.
    """

    def __init__(self, featurizer: Featurizer, bonds: bool = True) -> None:
        self.featurizer = featurizer
        self._has_bond_rows = bonds and bool(featurizer.bonds)
        self._appends_hydrogens = featurizer.hydrogens == "explicit"
        of_reactions = isinstance(featurizer, ReactionFeaturizer)
        self._atom_type: np.dtype[Any] = ATOM_SIDES if of_reactions else np.dtype(np.uint64)
        self._bond_type: np.dtype[Any] = BOND_SIDES if of_reactions else np.dtype(np.uint32)
        read = mol_bytes_reader()
        self._read = (lambda mol: read(kekulized(mol))) if featurizer.kekulized and self._has_bond_rows else read
        self._atoms: list[bytes] = []
        self._ends: list[bytes] = []
        self._bonds: list[bytes] = []

    def add(self, mol: Any) -> None:
        """Add an `rdkit.Chem.Mol`, or a reaction if the featuriser describes them, for which a molecule does not change.

        If the featuriser takes hydrogens as atoms, implicit hydrogens are appended behind the molecule's atoms.

        Raises:
            InvalidMoleculeError: when the molecule has too many atoms, or RDKit finds no Kekulé form or no CIP labels for a featuriser
                that needs them.
        """
        if isinstance(self.featurizer, ReactionFeaturizer):
            reaction = mol if isinstance(mol, Reaction) else unchanged(mol)
            atoms, ends, bonds = condensed(reaction, self._labelled, self.featurizer.balanced)
            _check_count(len(atoms) // ATOM_SIDES.itemsize)
        else:
            atoms, ends, bonds = self._labelled(mol)
        self._atoms.append(atoms)
        self._ends.append(ends)
        self._bonds.append(bonds)

    def _labelled(self, mol: Any) -> MolBytes:
        """Read the bytes of a molecule, with the CIP labels that the featuriser needs."""
        count = mol.GetNumAtoms()
        _check_count(count)
        atoms, ends, bonds = self._read(mol)
        if self._appends_hydrogens:
            _check_count(count + sum(atoms[_HIDDEN_HS::8]))
        if self.featurizer.stereo == "labels":
            atoms, bonds = with_labels(mol, atoms, bonds)
        return atoms, ends, bonds

    def finish(self) -> tuple[dict[str, Any], dict[int, str]]:
        """Return the arrays of all molecules that were added, without those with an atom that the featuriser does not support.

        Returns:
            - `num_nodes`, `num_edges`, `edge_index`, `codes` and `table` as :meth:`PackedMolecules.from_arrays` takes them, and
              `edge_codes` and `edge_table` where bonds have rows. Rows of tables are in order of first appearance.
            - the reason for each molecule that was left out, by its number in the order of adding.
        """
        refused = self._refused()
        if refused:
            for parts in (self._atoms, self._ends, self._bonds):
                parts[:] = [part for number, part in enumerate(parts) if number not in refused]
        atoms, num_atoms = self._all_atoms()
        hidden_hs = atoms.view(np.uint8)[_HIDDEN_HS::8] if self._appends_hydrogens else np.zeros(len(atoms), np.uint8)
        num_hydrogens = np.bincount(_owner(num_atoms), hidden_hs, len(num_atoms)).astype(np.int64)
        num_nodes = num_atoms + num_hydrogens
        starts = pointers(num_nodes)
        keys = np.full(starts[-1], _hydrogen(), atoms.dtype)
        keys[segment_index(starts[:-1], num_atoms)] = atoms
        codes, table = _encode(keys, _row_of(self.featurizer, AtomFields), self.featurizer.num_features)
        parents = np.repeat(segment_index(np.zeros_like(num_atoms), num_atoms), hidden_hs)
        appended = segment_index(num_atoms, num_hydrogens)
        ends, bonds, num_bonds = self._all_bonds(np.stack([parents, appended], 1), num_hydrogens)
        arrays = {
            "num_nodes": num_nodes.astype(np.int32),
            "num_edges": (2 * num_bonds).astype(np.int32),
            "edge_index": np.stack([ends, ends[:, ::-1]], axis=1).reshape(-1, 2).T,
            "codes": codes,
            "table": table,
        }
        if self._has_bond_rows:
            codes, table = _encode(bonds, _row_of(self.featurizer, BondFields), self.featurizer.num_bond_features)
            arrays |= {"edge_codes": np.repeat(codes, 2), "edge_table": table}
        return arrays, refused

    def _all_atoms(self) -> tuple[np.ndarray, np.ndarray]:
        """Return all atoms, uint64 or both sides [N], and the number of atoms of each molecule, both without hydrogens to append."""
        atoms, num_atoms = _joined(self._atoms, self._atom_type)
        if self.featurizer.stereo == "none":
            atoms.view(np.uint8)[ATOM_STEREO::8] = 0
        return atoms, num_atoms

    def _all_bonds(self, to_hydrogens: np.ndarray, num_hydrogens: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the B bonds, each once: their atoms uint16 [B, 2], their packed fields [B], and their number in each molecule.

        The bonds to appended hydrogens are given by their atoms, molecule after molecule, and their number in each molecule.
        """
        bonds, num_bonds = _joined(self._bonds, self._bond_type)
        if self.featurizer.stereo == "none":
            bonds.view(np.uint8)[BOND_STEREO::4] = 0
        ends = _joined(self._ends, np.dtype(np.uint16))[0].reshape(-1, 2)
        order = np.argsort(np.concatenate([_owner(num_bonds), _owner(num_hydrogens)]), kind="stable")
        ends = np.concatenate([ends, to_hydrogens.astype(np.uint16)])[order]
        bonds = np.concatenate([bonds, np.full(len(to_hydrogens), _BOND_TO_HYDROGEN, bonds.dtype)])[order]
        return ends, bonds, num_bonds + num_hydrogens

    def _refused(self) -> dict[int, str]:
        atoms, num_atoms = self._all_atoms()
        row, reasons = _row_of(self.featurizer, AtomFields), {}
        for key in np.unique(atoms).tolist():
            try:
                row(key)
            except UnsupportedAtomError as error:
                reasons[key] = str(error)
        bad = np.flatnonzero(np.isin(atoms, np.array(list(reasons), atoms.dtype))) if reasons else np.empty(0, np.int64)
        numbers, first = np.unique(_owner(num_atoms)[bad], return_index=True)
        return {number: reasons[key] for number, key in zip(numbers.tolist(), atoms[bad[first]].tolist(), strict=True)}


def _encode(keys: np.ndarray, row: Callable[[Any], bytes], width: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the codes int32 [N] and the table float32 [K, width] of atoms or bonds given by their packed fields."""
    distinct, first, places = np.unique(keys, return_index=True, return_inverse=True)
    code_of_row: dict[bytes, int] = {}
    code = np.empty(len(distinct), np.int32)
    for place in np.argsort(first):
        code[place] = code_of_row.setdefault(row(distinct[place].item()), len(code_of_row))
    return code[places], np.frombuffer(b"".join(code_of_row), np.float32).reshape(-1, width)


def _check_count(count: int) -> None:
    if count > MAX_ATOMS:
        raise InvalidMoleculeError(f"it has {count:,} atoms, at most {MAX_ATOMS:,} are supported")


def _joined(parts: Sequence[bytes], dtype: np.dtype[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Return the elements of all parts as one array, and the number of elements of each part."""
    joined = np.frombuffer(bytearray().join(parts), dtype)
    return joined, np.array([len(part) for part in parts], np.int64) // joined.itemsize


def _owner(sizes: np.ndarray) -> np.ndarray:
    return np.repeat(np.arange(len(sizes)), sizes)


@cache
def _row_of(featurizer: Featurizer, kind: type[AtomFields] | type[BondFields]) -> Callable[[Any], bytes]:
    """Return a function that encodes packed fields of an atom or bond, or of both sides, as the bytes of its row, each computed once."""
    of_atoms = kind is AtomFields
    if isinstance(featurizer, ReactionFeaturizer):
        absent: int = ABSENT_ATOM if of_atoms else ABSENT_BOND
        encode_sides: Callable[..., np.ndarray] = featurizer.encode_sides if of_atoms else featurizer.encode_bond_sides
        return cache(lambda keys: encode_sides(*(None if key == absent else kind.unpacked(key) for key in keys)).tobytes())
    encode: Callable[..., np.ndarray] = featurizer.encode if of_atoms else featurizer.encode_bond
    return cache(lambda key: encode(kind.unpacked(key)).tobytes())


@cache
def _hydrogen() -> int:
    """Return the packed fields of a hydrogen atom that is bound to one heavy atom."""
    from rdkit import Chem

    return read_atom(Chem.AddHs(Chem.MolFromSmiles("C")).GetAtomWithIdx(1)).packed()
