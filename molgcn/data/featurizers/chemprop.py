"""features=chemprop: Chemprop's default features (version 2: MultiHotAtomFeaturizer.v2, 72, and MultiHotBondFeaturizer, 14).

Unlike Chemprop, isotopes do not count: the mass is the element's mean mass, and hydrogens with an isotope are counted and not atoms. The
first column of bonds, Chemprop's flag for a missing bond, is 0 except in reactions. Chiral tags and the stereo of double bonds are
RDKit's. They depend on the order of atoms, so that a molecule in another order may have other rows.
"""

from __future__ import annotations

import numpy as np

from molgcn.data.featurizers.base import Featurizer, number, one_hot
from molgcn.data.featurizers.elements import element_of_mass, scaled_mass
from molgcn.data.featurizers.fields import BOND_STEREOS, CHIRAL_TAGS

ELEMENTS = (*range(1, 37), 53)
DEGREES = range(6)
CHARGES = (-1, -2, 1, 2, 0)
CHIRALITIES = CHIRAL_TAGS[:4]
HYDROGENS = range(5)
HYBRIDIZATIONS = ("S", "SP", "SP2", "SP2D", "SP3", "SP3D", "SP3D2")
BONDS = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")
STEREOS = BOND_STEREOS[:6]

_ATOMS = (
    one_hot(lambda atom: atom.number, ELEMENTS, (f"element_{n}" for n in ELEMENTS), "other_element"),
    one_hot(lambda atom: atom.degree + atom.hidden_hs, DEGREES, (f"degree_{n}" for n in DEGREES), "other_degree"),
    one_hot(lambda atom: atom.charge, CHARGES, (f"charge_{n:+d}" for n in CHARGES), "other_charge"),
    one_hot(lambda atom: CHIRAL_TAGS[atom.chiral_tag], CHIRALITIES, map(str.lower, CHIRALITIES), "other_chirality"),
    one_hot(lambda atom: atom.hidden_hs, HYDROGENS, (f"num_hs_{n}" for n in HYDROGENS), "other_num_hs"),
    one_hot(lambda atom: atom.hybridization_name, HYBRIDIZATIONS, map(str.lower, HYBRIDIZATIONS), "other_hybridization"),
    number("aromatic", lambda atom: atom.aromatic),
    number("mass", lambda atom: scaled_mass(atom.number)),
)
_BONDS = (
    number("no_bond", lambda bond: 0),
    one_hot(lambda bond: bond.type_name, BONDS, map(str.lower, BONDS)),
    number("conjugated", lambda bond: bond.conjugated),
    number("in_ring", lambda bond: bond.in_ring),
    one_hot(lambda bond: bond.stereo_name, STEREOS, map(str.lower, STEREOS), "other_stereo"),
)


def _element(row: np.ndarray) -> int:
    return element_of_mass(float(row[-1]))


CHEMPROP = Featurizer("chemprop", 1, "implicit", _ATOMS, _element, _BONDS, stereo="tags", has_hydrogens=True)
