"""features=qm9: the 11 atom and 4 bond features of torch_geometric.datasets.QM9; features=qm9_charge adds the formal charge.

Without the charge, [CH3-] and [CH3] have the same rows. PyG reads the SDF without perceiving aromaticity and hybridisation, so that its
columns for these are 0 and its bonds are those of the SDF's Kekulé form. Here they are perceived. A bond of any other type, which QM9 does
not have, is a row of zeros.
"""

from __future__ import annotations

import numpy as np

from molgcn.data.featurizers.base import Featurizer, UnsupportedAtomError, number, one_hot
from molgcn.data.featurizers.elements import element_symbol
from molgcn.data.featurizers.fields import AtomFields

ELEMENTS = {1: "H", 6: "C", 7: "N", 8: "O", 9: "F"}
BONDS = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")


def _number(atom: AtomFields) -> int:
    if atom.number not in ELEMENTS:
        raise UnsupportedAtomError(f"{element_symbol(atom.number)} is not one of QM9's elements, H C N O F; use features=general")
    return atom.number


def _element(row: np.ndarray) -> int:
    return int(row[len(ELEMENTS)])


_ATOMS = (
    one_hot(_number, ELEMENTS, ELEMENTS.values()),
    number("atomic_number", lambda atom: atom.number),
    number("aromatic", lambda atom: atom.aromatic),
    one_hot(lambda atom: atom.hybridization_name, ("SP", "SP2", "SP3"), ("sp", "sp2", "sp3")),
    number("num_hs", lambda atom: atom.num_hs),
)
_BONDS = (one_hot(lambda bond: bond.type_name, BONDS, map(str.lower, BONDS)),)

QM9 = Featurizer("qm9", 1, "explicit", _ATOMS, _element, _BONDS)
QM9_CHARGE = Featurizer("qm9_charge", 1, "explicit", (*_ATOMS, number("charge", lambda atom: atom.charge)), _element, _BONDS)
