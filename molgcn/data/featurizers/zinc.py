"""features=zinc: the 28 atom types of torch_geometric.datasets.ZINC in its order, and its bonds; features=zinc12k: 21 of them.

An atom type is an element, the hydrogens in its bracket and a charge, read from the Kekulé form. The 12,000 molecules of "Benchmarking
Graph Neural Networks" have only the first 21 types. Published networks for them have an embedding of 21 rows, which equals a linear map of
21 columns.

Bonds are those of the Kekulé form too: single, double or triple, after a column "none" as in PyG's numbers 1, 2 and 3. A bond of any other
type counts as "none". PyG's data set comes featurised, and the positions of its double bonds in rings cannot be reproduced, since a ring
has several Kekulé forms and RDKit's choice depends on the order of atoms. The number of double bonds is the same.
"""

from __future__ import annotations

import numpy as np

from molgcn.data.featurizers.base import Columns, Featurizer, UnsupportedAtomError, number, one_hot
from molgcn.data.featurizers.elements import atomic_number, element_symbol
from molgcn.data.featurizers.fields import AtomFields

# fmt: off
TYPES = (
    ("C", 0, 0), ("O", 0, 0), ("N", 0, 0), ("F", 0, 0), ("C", 1, 0), ("S", 0, 0), ("Cl", 0, 0), ("O", 0, -1),
    ("N", 1, 1), ("Br", 0, 0), ("N", 3, 1), ("N", 2, 1), ("N", 0, 1), ("N", 0, -1), ("S", 0, -1), ("I", 0, 0),
    ("P", 0, 0), ("O", 1, 1), ("N", 1, -1), ("O", 0, 1), ("S", 0, 1), ("P", 1, 0), ("P", 2, 0), ("C", 2, -1),
    ("P", 0, 1), ("S", 1, 1), ("C", 1, -1), ("P", 1, 1),
)
# fmt: on
TYPES_12K = TYPES[:21]
BONDS = ("SINGLE", "DOUBLE", "TRIPLE")


def atom_type_name(symbol: str, hydrogens: int, charge: int) -> str:
    """Return the benchmark's name of an atom type, such as "N H2 +"."""
    return " ".join(filter(None, (symbol, f"H{hydrogens}" if hydrogens else "", "+" * charge or "-" * -charge)))


def _atoms(types: tuple[tuple[str, int, int], ...], instead: str) -> tuple[Columns]:
    def atom_type(atom: AtomFields) -> tuple[str, int, int]:
        kekulized = atom.number in (7, 15) and atom.aromatic and atom.charge == 0 and atom.explicit_hs == 1  # its hydrogen is then implicit
        found = element_symbol(atom.number), 0 if kekulized else atom.explicit_hs, atom.charge
        if found not in types:
            raise UnsupportedAtomError(f"atom type '{atom_type_name(*found)}' is not one of the {instead}")
        return found

    return (one_hot(atom_type, types, (atom_type_name(*one) for one in types)),)


def _element(row: np.ndarray) -> int:
    return atomic_number(TYPES[int(row.argmax())][0])


_BONDS = (
    number("none", lambda bond: bond.type_name not in BONDS),
    one_hot(lambda bond: bond.type_name, BONDS, map(str.lower, BONDS)),
)
_ATOMS = _atoms(TYPES, "28 of features=zinc; use features=general")
_ATOMS_12K = _atoms(TYPES_12K, "21 of features=zinc12k; use features=zinc, which has 28")

ZINC = Featurizer("zinc", 2, "implicit", _ATOMS, _element, _BONDS, kekulized=True)
ZINC_12K = Featurizer("zinc12k", 1, "implicit", _ATOMS_12K, _element, _BONDS, kekulized=True)
