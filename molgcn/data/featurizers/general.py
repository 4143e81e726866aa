"""features=general: features for any organic molecule that do not depend on the order of its atoms.

Version 3 has 53 atom features and 16 bond features, with stereochemistry as the CIP labels of atoms and double bonds and with the size of
the smallest ring. Version 1 has 43 atom features and no bond features.
"""

from __future__ import annotations

import numpy as np

from molgcn.data.featurizers.base import Featurizer, number, one_hot
from molgcn.data.featurizers.elements import element_of_mass, scaled_mass
from molgcn.data.featurizers.fields import CIP_LABELS, BondFields

ELEMENTS = (1, 5, 6, 7, 8, 9, 14, 15, 16, 17, 34, 35, 53)
DEGREES = (0, 1, 2, 3, 4, 5)
CHARGES = (-2, -1, 0, 1, 2)
HYDROGENS = (0, 1, 2, 3, 4)
HYBRIDIZATIONS = ("S", "SP", "SP2", "SP3", "SP3D", "SP3D2")
RING_SIZES = (3, 4, 5, 6, 7, 8)  # the last also stands for all larger rings
BONDS = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC", "DATIVE")
DOUBLE_BONDS = {"STEREOE": "e", "STEREOTRANS": "e", "STEREOZ": "z", "STEREOCIS": "z"}


def _bond_type(bond: BondFields) -> str:
    return "DATIVE" if bond.type_name.startswith("DATIVE") else bond.type_name


_RINGS = one_hot(
    lambda item: min(item.ring_size, RING_SIZES[-1]),
    RING_SIZES,
    (*(f"ring_{n}" for n in RING_SIZES[:-1]), f"ring_{RING_SIZES[-1]}_or_more"),
)
_SYMBOLS = ("H", "B", "C", "N", "O", "F", "Si", "P", "S", "Cl", "Se", "Br", "I")
_ATOMS_1 = (
    one_hot(lambda atom: atom.number, ELEMENTS, _SYMBOLS, "other_element"),
    one_hot(lambda atom: atom.degree, DEGREES, (f"degree_{n}" for n in DEGREES), "other_degree"),
    one_hot(lambda atom: atom.charge, CHARGES, (f"charge_{n:+d}" for n in CHARGES), "other_charge"),
    one_hot(lambda atom: atom.num_hs, HYDROGENS, (f"num_hs_{n}" for n in HYDROGENS), "other_num_hs"),
    one_hot(lambda atom: atom.hybridization_name, HYBRIDIZATIONS, map(str.lower, HYBRIDIZATIONS), "other_hybridization"),
    number("aromatic", lambda atom: atom.aromatic),
    number("in_ring", lambda atom: atom.in_ring),
    number("mass", lambda atom: scaled_mass(atom.number)),
)
_CIP = one_hot(lambda atom: CIP_LABELS[atom.cip], CIP_LABELS[1:], (f"cip_{label}" for label in CIP_LABELS[1:]))
_BONDS = (
    one_hot(_bond_type, BONDS, map(str.lower, BONDS), "other_bond"),
    number("conjugated", lambda bond: bond.conjugated),
    number("in_ring", lambda bond: bond.in_ring),
    one_hot(lambda bond: DOUBLE_BONDS.get(bond.stereo_name), ("e", "z"), ("e", "z")),
    _RINGS,
)
_MASS = sum(len(columns.names) for columns in _ATOMS_1) - 1  # its column in both versions


def _element(row: np.ndarray) -> int:
    return element_of_mass(float(row[_MASS]))


GENERAL_1 = Featurizer("general", 1, "implicit", _ATOMS_1, _element, keeps_isotopes=True, superseded=True)
GENERAL = Featurizer("general", 3, "implicit", (*_ATOMS_1, _CIP, _RINGS), _element, _BONDS, stereo="labels", has_hydrogens=True)
