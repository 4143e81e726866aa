"""features=ogb: the 9 atom and 3 bond categories of the Open Graph Benchmark (Hu et al., arXiv:2005.00687), as ogb.utils.features has them.

A row is the one-hot encodings of all categories side by side, so that a linear map without bias is the sum of OGB's embeddings. Hydrogens
with an isotope, which are atoms in OGB, are counted. The stereo of a bond with hindered rotation, for which OGB raises an error, is all
zeros. Chirality (clockwise or not, seen from the first neighbour) and the stereo of double bonds are RDKit's tags. They depend on the order
of atoms, so that a molecule in another order may have other rows.
"""

from __future__ import annotations

import numpy as np

from molgcn.data.featurizers.base import Featurizer, one_hot, one_hot_or_other
from molgcn.data.featurizers.fields import CHIRAL_TAGS, AtomFields, BondFields

ELEMENTS = range(1, 119)
CHIRALITIES = CHIRAL_TAGS[:4]
DEGREES = range(11)
CHARGES = range(-5, 6)
HYDROGENS = range(9)
RADICALS = range(5)
HYBRIDIZATIONS = ("SP", "SP2", "SP3", "SP3D", "SP3D2")
BONDS = ("SINGLE", "DOUBLE", "TRIPLE", "AROMATIC")
STEREOS = ("STEREONONE", "STEREOZ", "STEREOE", "STEREOCIS", "STEREOTRANS", "STEREOANY")
_NO_YES = (0, 1)

NAMES = (
    *(f"element_{number}" for number in ELEMENTS),
    "other_element",
    *(name.lower() for name in CHIRALITIES),
    "other_chirality",
    *(f"degree_{n}" for n in DEGREES),
    "other_degree",
    *(f"charge_{n:+d}" for n in CHARGES),
    "other_charge",
    *(f"num_hs_{n}" for n in HYDROGENS),
    "other_num_hs",
    *(f"radicals_{n}" for n in RADICALS),
    "other_radicals",
    *(name.lower() for name in HYBRIDIZATIONS),
    "other_hybridization",
    *("not_aromatic", "aromatic", "not_in_ring", "in_ring"),
)
BOND_NAMES = (*(name.lower() for name in BONDS), "other_bond", *(name.lower() for name in STEREOS), "not_conjugated", "conjugated")


def _encode(atom: AtomFields) -> np.ndarray:
    return np.array(
        [
            *one_hot_or_other(atom.number, ELEMENTS),
            *one_hot_or_other(CHIRAL_TAGS[atom.chiral_tag], CHIRALITIES),
            *one_hot_or_other(atom.degree + atom.hidden_hs, DEGREES),
            *one_hot_or_other(atom.charge, CHARGES),
            *one_hot_or_other(atom.hidden_hs, HYDROGENS),
            *one_hot_or_other(atom.radicals, RADICALS),
            *one_hot_or_other(atom.hybridization_name, HYBRIDIZATIONS),
            *one_hot(atom.aromatic, _NO_YES),
            *one_hot(atom.in_ring, _NO_YES),
        ],
        np.float32,
    )


def _encode_bond(bond: BondFields) -> np.ndarray:
    kinds = one_hot_or_other(bond.type_name, BONDS)
    return np.array([*kinds, *one_hot(bond.stereo_name, STEREOS), *one_hot(bond.conjugated, _NO_YES)], np.float32)


def _element(row: np.ndarray) -> int:
    return (int(row.argmax()) + 1) % (len(ELEMENTS) + 1)


OGB = Featurizer("ogb", 1, "implicit", NAMES, _encode, _element, BOND_NAMES, _encode_bond, stereo="tags")
