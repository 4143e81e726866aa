"""features=chemprop: Chemprop's default features (version 2: MultiHotAtomFeaturizer.v2, 72, and MultiHotBondFeaturizer, 14).

Unlike Chemprop, isotopes do not count: the mass is the element's mean mass, and hydrogens with an isotope are counted and not atoms. The
first column of bonds, Chemprop's flag for a missing bond, is always 0. Chiral tags and the stereo of double bonds are RDKit's. They depend
on the order of atoms, so that a molecule in another order may have other rows.
"""

from __future__ import annotations

import numpy as np

from molgcn.data.featurizers.base import Featurizer, one_hot, one_hot_or_other
from molgcn.data.featurizers.elements import element_of_mass, scaled_mass
from molgcn.data.featurizers.fields import BOND_STEREOS, CHIRAL_TAGS, AtomFields, BondFields

ELEMENTS = (*range(1, 37), 53)
DEGREES = range(6)
CHARGES = (-1, -2, 1, 2, 0)
CHIRALITIES = CHIRAL_TAGS[:4]
HYDROGENS = range(5)
HYBRIDIZATIONS = ("S", "SP", "SP2", "SP2D", "SP3", "SP3D", "SP3D2")
BONDS = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")
STEREOS = BOND_STEREOS[:6]

NAMES = (
    *(f"element_{number}" for number in ELEMENTS),
    "other_element",
    *(f"degree_{n}" for n in DEGREES),
    "other_degree",
    *(f"charge_{n:+d}" for n in CHARGES),
    "other_charge",
    *(name.lower() for name in CHIRALITIES),
    "other_chirality",
    *(f"num_hs_{n}" for n in HYDROGENS),
    "other_num_hs",
    *(name.lower() for name in HYBRIDIZATIONS),
    "other_hybridization",
    *("aromatic", "mass"),
)
BOND_NAMES = (
    "no_bond",
    *(name.lower() for name in BONDS),
    *("conjugated", "in_ring"),
    *(name.lower() for name in STEREOS),
    "other_stereo",
)


def _encode(atom: AtomFields) -> np.ndarray:
    return np.array(
        [
            *one_hot_or_other(atom.number, ELEMENTS),
            *one_hot_or_other(atom.degree + atom.hidden_hs, DEGREES),
            *one_hot_or_other(atom.charge, CHARGES),
            *one_hot_or_other(CHIRAL_TAGS[atom.chiral_tag], CHIRALITIES),
            *one_hot_or_other(atom.hidden_hs, HYDROGENS),
            *one_hot_or_other(atom.hybridization_name, HYBRIDIZATIONS),
            atom.aromatic,
            scaled_mass(atom.number),
        ],
        np.float32,
    )


def _encode_bond(bond: BondFields) -> np.ndarray:
    stereo = one_hot_or_other(bond.stereo_name, STEREOS)
    return np.array([0, *one_hot(bond.type_name, BONDS), bond.conjugated, bond.in_ring, *stereo], np.float32)


def _element(row: np.ndarray) -> int:
    return element_of_mass(float(row[NAMES.index("mass")]))


CHEMPROP = Featurizer("chemprop", 1, "implicit", NAMES, _encode, _element, BOND_NAMES, _encode_bond, stereo="tags")
