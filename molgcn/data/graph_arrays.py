"""Molecules to flat arrays: as little as possible for each molecule, the rest for many at once.

Hydrogens that no SMILES wrote are never made into atoms of RDKit's: how many each heavy atom carries says all about them.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from molgcn.data.atoms import AtomFeaturizer, AtomFields, UnsupportedAtomError
from molgcn.data.mol_bytes import mol_bytes_reader, pack_atom, read_atom, unpack_atom
from molgcn.data.molecules import InvalidMoleculeError, count_hydrogens
from molgcn.data.packing import MAX_ATOMS
from molgcn.data.segments import pointers, segment_index

_NUMBER, _HIDDEN_HS = AtomFields._fields.index("number"), AtomFields._fields.index("hidden_hs")
_HYDROGEN = 1


class GraphArrays:
    """Gathers molecules, then gives each atom a code into their distinct feature rows, and the bonds.

    Args:
        featurizer: what is read from an atom.
    """

    def __init__(self, featurizer: AtomFeaturizer) -> None:
        self.featurizer = featurizer
        self._appends_hydrogens = featurizer.hydrogens == "explicit"
        self.counts_hydrogens = featurizer.hydrogens == "implicit" and not featurizer.keeps_isotopes
        self._read = mol_bytes_reader()
        self._atoms: list[bytes] = []
        self._bonds: list[bytes] = []

    def add(self, mol: Any) -> None:
        """Adds an `rdkit.Chem.Mol`; hydrogens that are no atoms of it are appended behind its atoms if the featuriser wants them as atoms.

        Otherwise those that are atoms of it are counted at the atoms that they are bound to.

        Raises:
            InvalidMoleculeError: when it has too many atoms.
        """
        count = mol.GetNumAtoms()
        atoms, bonds = self._read(mol) if count <= MAX_ATOMS else (b"", b"")
        if self.counts_hydrogens and _HYDROGEN in atoms[_NUMBER::8]:
            mol = count_hydrogens(mol)
            count = mol.GetNumAtoms()
            atoms, bonds = self._read(mol)
        if self._appends_hydrogens:
            count += sum(atoms[_HIDDEN_HS::8])
        if count > MAX_ATOMS:
            raise InvalidMoleculeError(f"it has {count:,} atoms, at most {MAX_ATOMS:,} are supported")
        self._atoms.append(atoms)
        self._bonds.append(bonds)

    def finish(self) -> tuple[dict[str, Any], dict[int, str]]:
        """The molecules added, without those that have an atom for which the featuriser has no row.

        Returns:
            `num_nodes`, `num_edges`, `edge_index`, `codes` and `table`, as :meth:`PackedMolecules.from_arrays` takes them, the table's rows
            in the order of their first appearance; and why each molecule that was left out was, by its number in the order of adding.
        """
        refused = self._refused()
        if refused:
            self._atoms = [atoms for number, atoms in enumerate(self._atoms) if number not in refused]
            self._bonds = [bonds for number, bonds in enumerate(self._bonds) if number not in refused]
        atoms, num_atoms = _joined(self._atoms, np.uint64)
        ends, num_bonds = _joined(self._bonds, np.uint32)
        hidden_hs = atoms.view(np.uint8)[_HIDDEN_HS::8] if self._appends_hydrogens else np.zeros(len(atoms), np.uint8)
        num_hydrogens = np.bincount(_owner(num_atoms), hidden_hs, len(num_atoms)).astype(np.int64)
        num_nodes = num_atoms + num_hydrogens
        starts = pointers(num_nodes)
        keys = np.full(starts[-1], _hydrogen(), np.uint64)
        keys[segment_index(starts[:-1], num_atoms)] = atoms
        codes, table = self._encode(keys)
        parents = np.repeat(segment_index(np.zeros_like(num_atoms), num_atoms), hidden_hs)
        appended = segment_index(num_atoms, num_hydrogens)
        arrays = {
            "num_nodes": num_nodes.astype(np.int32),
            "num_edges": (2 * (num_bonds + num_hydrogens)).astype(np.int32),
            "edge_index": _both_directions(ends.view(np.uint16).reshape(-1, 2), num_bonds, np.stack([parents, appended], 1), num_hydrogens),
            "codes": codes,
            "table": table,
        }
        return arrays, refused

    def _refused(self) -> dict[int, str]:
        atoms, num_atoms = _joined(self._atoms, np.uint64)
        reasons = {}
        for key in np.unique(atoms).tolist():
            try:
                _row(self.featurizer, key)
            except UnsupportedAtomError as error:
                reasons[key] = str(error)
        bad = np.flatnonzero(np.isin(atoms, np.array(list(reasons), np.uint64))) if reasons else np.empty(0, np.int64)
        numbers, first = np.unique(_owner(num_atoms)[bad], return_index=True)
        return {number: reasons[key] for number, key in zip(numbers.tolist(), atoms[bad[first]].tolist(), strict=True)}

    def _encode(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Codes int32 [N] and table float32 [K, F] of atoms given by their eight bytes."""
        distinct, first, places = np.unique(keys, return_index=True, return_inverse=True)
        code_of_row: dict[bytes, int] = {}
        code = np.empty(len(distinct), np.int32)
        for place in np.argsort(first):
            code[place] = code_of_row.setdefault(_row(self.featurizer, int(distinct[place])), len(code_of_row))
        return code[places], np.frombuffer(b"".join(code_of_row), np.float32).reshape(-1, self.featurizer.num_features)


def _joined(parts: list[bytes], dtype: type[np.generic]) -> tuple[np.ndarray, np.ndarray]:
    """All elements as one array, and how many each part has."""
    joined = np.frombuffer(b"".join(parts), dtype)
    return joined, np.array([len(part) for part in parts], np.int64) // joined.itemsize


def _owner(sizes: np.ndarray) -> np.ndarray:
    """The number of the segment that each element is in."""
    return np.repeat(np.arange(len(sizes)), sizes)


def _both_directions(bonds: np.ndarray, num_bonds: np.ndarray, to_hydrogens: np.ndarray, num_hydrogens: np.ndarray) -> np.ndarray:
    """Bonds [B, 2] between atoms and to appended hydrogens as directed ones, molecule after molecule: uint16 [2, E]."""
    between = np.stack([bonds, bonds[:, ::-1]], axis=1).reshape(-1, 2)
    directed = np.concatenate([between, to_hydrogens, to_hydrogens[:, ::-1]]).astype(np.uint16)
    owner = np.concatenate([_owner(count) for count in (2 * num_bonds, num_hydrogens, num_hydrogens)])
    return directed[np.argsort(owner, kind="stable")].T


@cache
def _row(featurizer: AtomFeaturizer, key: int) -> bytes:
    """The feature row of an atom's eight bytes."""
    return featurizer.encode(unpack_atom(key)).tobytes()


@cache
def _hydrogen() -> int:
    """The eight bytes of a hydrogen atom that is bound to one heavy atom."""
    from rdkit import Chem

    return pack_atom(read_atom(Chem.AddHs(Chem.MolFromSmiles("C")).GetAtomWithIdx(1)))
