"""features=ogb: the 9 atom and 3 bond categories of the Open Graph Benchmark (Hu et al., arXiv:2005.00687), as ogb.utils.features has them.

A row is the one-hot encodings of all categories side by side, so that a linear map without bias is the sum of OGB's embeddings. Hydrogens
with an isotope, which are atoms in OGB, are counted. The stereo of a bond with hindered rotation, for which OGB raises an error, is all
zeros. Chirality (clockwise or not, seen from the first neighbour) and the stereo of double bonds are RDKit's tags. They depend on the order
of atoms, so that a molecule in another order may have other rows.
"""

from __future__ import annotations

import numpy as np

from molgcn.data.featurizers.base import Featurizer, one_hot
from molgcn.data.featurizers.fields import CHIRAL_TAGS

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

_ATOMS = (
    one_hot(lambda atom: atom.number, ELEMENTS, (f"element_{n}" for n in ELEMENTS), "other_element"),
    one_hot(lambda atom: CHIRAL_TAGS[atom.chiral_tag], CHIRALITIES, map(str.lower, CHIRALITIES), "other_chirality"),
    one_hot(lambda atom: atom.degree + atom.hidden_hs, DEGREES, (f"degree_{n}" for n in DEGREES), "other_degree"),
    one_hot(lambda atom: atom.charge, CHARGES, (f"charge_{n:+d}" for n in CHARGES), "other_charge"),
    one_hot(lambda atom: atom.hidden_hs, HYDROGENS, (f"num_hs_{n}" for n in HYDROGENS), "other_num_hs"),
    one_hot(lambda atom: atom.radicals, RADICALS, (f"radicals_{n}" for n in RADICALS), "other_radicals"),
    one_hot(lambda atom: atom.hybridization_name, HYBRIDIZATIONS, map(str.lower, HYBRIDIZATIONS), "other_hybridization"),
    one_hot(lambda atom: atom.aromatic, _NO_YES, ("not_aromatic", "aromatic")),
    one_hot(lambda atom: atom.in_ring, _NO_YES, ("not_in_ring", "in_ring")),
)
_BONDS = (
    one_hot(lambda bond: bond.type_name, BONDS, map(str.lower, BONDS), "other_bond"),
    one_hot(lambda bond: bond.stereo_name, STEREOS, map(str.lower, STEREOS)),
    one_hot(lambda bond: bond.conjugated, _NO_YES, ("not_conjugated", "conjugated")),
)


def _element(row: np.ndarray) -> int:
    return (int(row.argmax()) + 1) % (len(ELEMENTS) + 1)


OGB = Featurizer("ogb", 1, "implicit", _ATOMS, _element, _BONDS, stereo="tags", has_hydrogens=True)
