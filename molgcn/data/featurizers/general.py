"""features=general: features for any organic molecule that do not depend on the order of its atoms.

Version 3 has 53 atom features and 16 bond features, with stereochemistry as the CIP labels of atoms and double bonds and with the size of
the smallest ring. Version 1 has 43 atom features and no bond features.
"""

from __future__ import annotations

import numpy as np

from molgcn.data.featurizers.base import Featurizer, one_hot, one_hot_or_other
from molgcn.data.featurizers.elements import element_of_mass, scaled_mass
from molgcn.data.featurizers.fields import CIP_LABELS, AtomFields, BondFields

ELEMENTS = (1, 5, 6, 7, 8, 9, 14, 15, 16, 17, 34, 35, 53)
DEGREES = (0, 1, 2, 3, 4, 5)
CHARGES = (-2, -1, 0, 1, 2)
HYDROGENS = (0, 1, 2, 3, 4)
HYBRIDIZATIONS = ("S", "SP", "SP2", "SP3", "SP3D", "SP3D2")
RING_SIZES = (3, 4, 5, 6, 7, 8)  # the last also stands for all larger rings
BONDS = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC", "DATIVE")
DOUBLE_BONDS = {"e": ("STEREOE", "STEREOTRANS"), "z": ("STEREOZ", "STEREOCIS")}

NAMES_1 = (
    *("H", "B", "C", "N", "O", "F", "Si", "P", "S", "Cl", "Se", "Br", "I", "other_element"),
    *(f"degree_{n}" for n in DEGREES),
    "other_degree",
    *(f"charge_{n:+d}" for n in CHARGES),
    "other_charge",
    *(f"num_hs_{n}" for n in HYDROGENS),
    "other_num_hs",
    *(name.lower() for name in HYBRIDIZATIONS),
    "other_hybridization",
    *("aromatic", "in_ring", "mass"),
)
_RING_NAMES = (*(f"ring_{n}" for n in RING_SIZES[:-1]), f"ring_{RING_SIZES[-1]}_or_more")
NAMES = (*NAMES_1, *(f"cip_{label}" for label in CIP_LABELS[1:]), *_RING_NAMES)
BOND_NAMES = (*(name.lower() for name in BONDS), "other_bond", "conjugated", "in_ring", "e", "z", *_RING_NAMES)


def _encode_1(atom: AtomFields) -> np.ndarray:
    return np.array(
        [
            *one_hot_or_other(atom.number, ELEMENTS),
            *one_hot_or_other(atom.degree, DEGREES),
            *one_hot_or_other(atom.charge, CHARGES),
            *one_hot_or_other(atom.num_hs, HYDROGENS),
            *one_hot_or_other(atom.hybridization_name, HYBRIDIZATIONS),
            atom.aromatic,
            atom.in_ring,
            scaled_mass(atom.number),
        ],
        np.float32,
    )


def _encode(atom: AtomFields) -> np.ndarray:
    return np.array([*_encode_1(atom), *one_hot(CIP_LABELS[atom.cip], CIP_LABELS[1:]), *_ring_size(atom)], np.float32)


def _encode_bond(bond: BondFields) -> np.ndarray:
    bond_type = "DATIVE" if bond.type_name.startswith("DATIVE") else bond.type_name
    geometry = [bond.stereo_name in names for names in DOUBLE_BONDS.values()]
    return np.array([*one_hot_or_other(bond_type, BONDS), bond.conjugated, bond.in_ring, *geometry, *_ring_size(bond)], np.float32)


def _ring_size(item: AtomFields | BondFields) -> list[float]:
    return one_hot(min(item.ring_size, RING_SIZES[-1]), RING_SIZES)


def _element(row: np.ndarray) -> int:
    return element_of_mass(float(row[NAMES_1.index("mass")]))


GENERAL_1 = Featurizer("general", 1, "implicit", NAMES_1, _encode_1, _element, keeps_isotopes=True, superseded=True)
GENERAL = Featurizer("general", 3, "implicit", NAMES, _encode, _element, BOND_NAMES, _encode_bond, stereo="labels")
