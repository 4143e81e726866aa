"""features=qm9: the 11 atom and 4 bond features of torch_geometric.datasets.QM9; features=qm9_charge adds the formal charge.

Without the charge, [CH3-] and [CH3] have the same rows. PyG reads the SDF without perceiving aromaticity and hybridisation, so that its
columns for these are 0 and its bonds are those of the SDF's Kekulé form. Here they are perceived. A bond of any other type, which QM9 does
not have, is a row of zeros.
"""

from __future__ import annotations

import numpy as np

from molgcn.data.featurizers.base import Featurizer, UnsupportedAtomError, one_hot
from molgcn.data.featurizers.elements import element_symbol
from molgcn.data.featurizers.fields import AtomFields, BondFields

ELEMENTS = {1: "H", 6: "C", 7: "N", 8: "O", 9: "F"}
NAMES = (*ELEMENTS.values(), "atomic_number", "aromatic", "sp", "sp2", "sp3", "num_hs")
BONDS = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")


def _encode(atom: AtomFields) -> np.ndarray:
    if atom.number not in ELEMENTS:
        raise UnsupportedAtomError(f"{element_symbol(atom.number)} is not one of QM9's elements, H C N O F; use features=general")
    hybrid = one_hot(atom.hybridization_name, ("SP", "SP2", "SP3"))
    return np.array([*one_hot(atom.number, tuple(ELEMENTS)), atom.number, atom.aromatic, *hybrid, atom.num_hs], np.float32)


def _encode_with_charge(atom: AtomFields) -> np.ndarray:
    return np.append(_encode(atom), np.float32(atom.charge))


def _element(row: np.ndarray) -> int:
    return int(row[NAMES.index("atomic_number")])


def _encode_bond(bond: BondFields) -> np.ndarray:
    return np.array(one_hot(bond.type_name, BONDS), np.float32)


QM9 = Featurizer("qm9", 1, "explicit", NAMES, _encode, _element, tuple(name.lower() for name in BONDS), _encode_bond)
QM9_CHARGE = Featurizer("qm9_charge", 1, "explicit", (*NAMES, "charge"), _encode_with_charge, _element, QM9.bond_names, _encode_bond)
