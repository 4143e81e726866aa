"""Molecules to flat arrays, with as few calls into RDKit as its Python interface allows.

An RDKit atom or bond object costs about as much as parsing one character of SMILES, twice that from RDKit's iterators, so they are asked
for by number, and hydrogens that no SMILES wrote are never made into atoms: how many each heavy atom carries says all about them.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import cache
from typing import Any

import numpy as np

from molgcn.data.atoms import AtomFeaturizer, get_featurizer
from molgcn.data.molecules import InvalidMoleculeError
from molgcn.data.packing import MAX_ATOMS
from molgcn.data.segments import segment_index


class GraphArrays:
    """Gathers molecules: one code an atom into the distinct feature rows seen so far, and the bonds.

    Args:
        featurizer: what is read from an atom.
    """

    def __init__(self, featurizer: AtomFeaturizer) -> None:
        self.featurizer = featurizer
        self._table: dict[Hashable, int] = {}
        self._rows: list[np.ndarray] = []
        self._codes: list[int] = []
        self._num_atoms: list[int] = []  # that RDKit has
        self._num_hydrogens: list[int] = []  # appended behind them
        self._num_bonds: list[int] = []
        self._ends: list[int] = []  # the two atoms of each bond
        self._parents: list[int] = []  # the atom of each appended hydrogen

    def add(self, mol: Any) -> None:
        """Adds an `rdkit.Chem.Mol`; hydrogens that are no atoms of it are appended behind its atoms if the featuriser wants them.

        Raises:
            InvalidMoleculeError: when it has too many atoms.
            UnsupportedAtomError: for an atom that the featuriser has no row for; nothing is added then.
        """
        count = mol.GetNumAtoms()
        if count > MAX_ATOMS:
            raise InvalidMoleculeError(f"it has {count:,} atoms, at most {MAX_ATOMS:,} are supported")
        atom_of = self._read_from(mol).GetAtomWithIdx
        atoms = [atom_of(index) for index in range(count)]
        keys = [self.featurizer.key(atom) for atom in atoms]
        parents: list[int] = []
        if self.featurizer.hydrogens == "explicit":
            parents = [index for index, atom in enumerate(atoms) for _ in range(atom.GetTotalNumHs())]
            if count + len(parents) > MAX_ATOMS:
                raise InvalidMoleculeError(f"it has {count + len(parents):,} atoms, at most {MAX_ATOMS:,} are supported")
            keys += [_hydrogen(self.featurizer.name)] * len(parents)
        self._codes += self._encode(keys)
        self._num_atoms.append(count)
        self._num_hydrogens.append(len(parents))
        self._num_bonds.append(mol.GetNumBonds())
        bond_of = mol.GetBondWithIdx
        for index in range(self._num_bonds[-1]):
            bond = bond_of(index)
            self._ends += bond.GetBeginAtomIdx(), bond.GetEndAtomIdx()
        self._parents += parents

    def _read_from(self, mol: Any) -> Any:
        from rdkit import Chem

        if self.featurizer.kekulize:
            mol = Chem.Mol(mol)
            Chem.Kekulize(mol, clearAromaticFlags=True)
        return mol

    def _encode(self, keys: list[Hashable]) -> list[int]:
        try:
            return [self._table[key] for key in keys]
        except KeyError:
            fresh = {key: self.featurizer.encode(key) for key in dict.fromkeys(keys) if key not in self._table}
        for key, row in fresh.items():
            self._table[key] = len(self._rows)
            self._rows.append(row)
        return [self._table[key] for key in keys]

    def arrays(self) -> dict[str, np.ndarray]:
        """`num_nodes`, `num_edges`, `edge_index`, `codes` and `table` of all molecules added, as :class:`Featurized` has them."""
        atoms, hydrogens = np.array(self._num_atoms, np.int64), np.array(self._num_hydrogens, np.int64)
        sizes = 2 * np.array(self._num_bonds, np.int64)
        ends = np.array(self._ends, np.int64).reshape(-1, 2)
        heavy = np.stack([ends, ends[:, ::-1]], axis=1).reshape(-1, 2).T
        parents = np.array(self._parents, np.int64)
        appended = segment_index(atoms, hydrogens)
        to_hydrogens = np.stack([np.concatenate([parents, appended]), np.concatenate([appended, parents])])
        molecule = np.concatenate([np.repeat(np.arange(len(atoms)), count) for count in (sizes, hydrogens, hydrogens)])
        order = np.argsort(molecule, kind="stable")
        return {
            "num_nodes": (atoms + hydrogens).astype(np.int32),
            "num_edges": (sizes + 2 * hydrogens).astype(np.int32),
            "edge_index": np.concatenate([heavy, to_hydrogens], axis=1)[:, order].astype(np.uint16),
            "codes": np.array(self._codes, np.int32),
            "table": np.array(self._rows, np.float32).reshape(-1, self.featurizer.num_features),
        }


@cache
def _hydrogen(features: str) -> Hashable:
    """The key of a hydrogen atom that is bound to one heavy atom."""
    from rdkit import Chem

    return get_featurizer(features).key(Chem.AddHs(Chem.MolFromSmiles("C")).GetAtomWithIdx(1))
