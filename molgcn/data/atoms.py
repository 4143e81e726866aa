"""The atom featurisers: what is read from an RDKit atom, and the feature row that stands for it.

Reading and encoding are apart because rows repeat (QM9 has a few dozen): an atom is read into eight bytes, and each distinct eight are
encoded once. Isotopes are not read: [13C] has the row of C, and [2H] that of H.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

from molgcn.errors import UserError


class UnsupportedAtomError(Exception):
    """An atom that a featuriser has no row for; the text says which and what it takes."""


class AtomFields(NamedTuple):
    """What featurisers read from an `rdkit.Chem.Atom`: eight numbers of a byte each; what is more than 255 counts as 255.

    Attributes:
        number: atomic number, 0 for a dummy.
        degree: bonds that the molecule has at it.
        charge: formal charge, -128 to 127.
        num_hs: hydrogens, with those that are atoms of the molecule (GetTotalNumHs(True)).
        hidden_hs: hydrogens that are no atoms of it (GetTotalNumHs()).
        explicit_hs: the part of them that was stated (GetNumExplicitHs()).
        hybridization: place in :data:`HYBRIDIZATIONS`.
        flags: 1 when aromatic, plus 2 when in a ring.
    """

    number: int
    degree: int
    charge: int
    num_hs: int
    hidden_hs: int
    explicit_hs: int
    hybridization: int
    flags: int

    @property
    def hybridization_name(self) -> str:
        """RDKit's name, as "SP2"."""
        return HYBRIDIZATIONS[self.hybridization]

    @property
    def aromatic(self) -> bool:
        """GetIsAromatic()."""
        return bool(self.flags & 1)

    @property
    def in_ring(self) -> bool:
        """IsInRing()."""
        return bool(self.flags & 2)


HYBRIDIZATIONS = ("UNSPECIFIED", "S", "SP", "SP2", "SP3", "SP2D", "SP3D", "SP3D2", "OTHER")  # numbered as rdkit.Chem.HybridizationType


@dataclass(frozen=True)
class AtomFeaturizer:
    """One way to turn atoms into feature rows.

    Attributes:
        name: key in :data:`FEATURIZERS`.
        version: goes up when rows change, so that cached sets are rebuilt; older versions stay for what was trained with them.
        hydrogens: "explicit" (added, after the heavy atoms) or "implicit" (counted at the atom that each is bound to, whatever its isotope;
            those of [H][H] and [H+] are bound to no other element, and stay).
        names: one name a feature.
        encode: turns what was read from an atom into float32 [F]; raises UnsupportedAtomError.
        element: the atomic number of the atom that a feature row stands for, 0 for a dummy.
        keeps_isotopes: implicit hydrogens that RDKit's reading leaves, such as [2H], are atoms. Version 1 of zinc and general did that.
    """

    name: str
    version: int
    hydrogens: str
    names: tuple[str, ...]
    encode: Callable[[AtomFields], np.ndarray]
    element: Callable[[np.ndarray], int]
    keeps_isotopes: bool = False

    @property
    def num_features(self) -> int:
        """Length of a feature row."""
        return len(self.names)

    @property
    def spelled(self) -> str:
        """What :func:`get_featurizer` takes: the name, with the version behind a colon if there is a newer one, as in "general:1"."""
        return self.name if FEATURIZERS[self.name] == self else f"{self.name}:{self.version}"


def _one_hot(value: object, choices: tuple[Any, ...]) -> list[float]:
    return [float(value == choice) for choice in choices]


# --- "qm9": the 11 features of torch_geometric.datasets.QM9 -----------------------------------------------------------
QM9_ELEMENTS = {1: "H", 6: "C", 7: "N", 8: "O", 9: "F"}
QM9_NAMES = (*QM9_ELEMENTS.values(), "atomic_number", "aromatic", "sp", "sp2", "sp3", "num_hs")


def _qm9_encode(atom: AtomFields) -> np.ndarray:
    if atom.number not in QM9_ELEMENTS:
        raise UnsupportedAtomError(f"{element_symbol(atom.number)} is not one of QM9's elements, H C N O F; use features=general")
    hybrid = _one_hot(atom.hybridization_name, ("SP", "SP2", "SP3"))
    return np.array([*_one_hot(atom.number, tuple(QM9_ELEMENTS)), atom.number, atom.aromatic, *hybrid, atom.num_hs], np.float32)


def _qm9_element(row: np.ndarray) -> int:
    return int(row[QM9_NAMES.index("atomic_number")])


# --- "qm9_charge": these and the formal charge, without which [CH3-] and [CH3] have the same row ----------------------
def _qm9_charge_encode(atom: AtomFields) -> np.ndarray:
    return np.append(_qm9_encode(atom), np.float32(atom.charge))


# --- "zinc": the 28 atom types of torch_geometric.datasets.ZINC, in its order: (symbol, bracket hydrogens, charge) -----
# fmt: off
ZINC_TYPES = (
    ("C", 0, 0), ("O", 0, 0), ("N", 0, 0), ("F", 0, 0), ("C", 1, 0), ("S", 0, 0), ("Cl", 0, 0), ("O", 0, -1),
    ("N", 1, 1), ("Br", 0, 0), ("N", 3, 1), ("N", 2, 1), ("N", 0, 1), ("N", 0, -1), ("S", 0, -1), ("I", 0, 0),
    ("P", 0, 0), ("O", 1, 1), ("N", 1, -1), ("O", 0, 1), ("S", 0, 1), ("P", 1, 0), ("P", 2, 0), ("C", 2, -1),
    ("P", 0, 1), ("S", 1, 1), ("C", 1, -1), ("P", 1, 1),
)
# fmt: on


def atom_type_name(symbol: str, hydrogens: int, charge: int) -> str:
    """The benchmark's spelling of an atom type, as in "N H2 +"."""
    return " ".join(filter(None, (symbol, f"H{hydrogens}" if hydrogens else "", "+" * charge or "-" * -charge)))


def _zinc_encode(atom: AtomFields) -> np.ndarray:
    kekulized = atom.number in (7, 15) and atom.aromatic and atom.charge == 0 and atom.explicit_hs == 1  # its hydrogen is then implicit
    atom_type = element_symbol(atom.number), 0 if kekulized else atom.explicit_hs, atom.charge
    if atom_type not in ZINC_TYPES:
        raise UnsupportedAtomError(f"atom type '{atom_type_name(*atom_type)}' is not one of the 28 of features=zinc; use features=general")
    return np.array(_one_hot(atom_type, ZINC_TYPES), np.float32)


def _zinc_element(row: np.ndarray) -> int:
    return _number(ZINC_TYPES[int(row.argmax())][0])


# --- "general": any organic molecule ----------------------------------------------------------------------------------
GENERAL_ELEMENTS = (1, 5, 6, 7, 8, 9, 14, 15, 16, 17, 34, 35, 53)
GENERAL_DEGREES = (0, 1, 2, 3, 4, 5)
GENERAL_CHARGES = (-2, -1, 0, 1, 2)
GENERAL_HYDROGENS = (0, 1, 2, 3, 4)
GENERAL_HYBRIDIZATIONS = ("S", "SP", "SP2", "SP3", "SP3D", "SP3D2")
GENERAL_NAMES = (
    *("H", "B", "C", "N", "O", "F", "Si", "P", "S", "Cl", "Se", "Br", "I", "other_element"),
    *(f"degree_{n}" for n in GENERAL_DEGREES),
    "other_degree",
    *(f"charge_{n:+d}" for n in GENERAL_CHARGES),
    "other_charge",
    *(f"num_hs_{n}" for n in GENERAL_HYDROGENS),
    "other_num_hs",
    *(name.lower() for name in GENERAL_HYBRIDIZATIONS),
    "other_hybridization",
    *("aromatic", "in_ring", "mass"),
)


def _one_hot_or_other(value: object, choices: tuple[Any, ...]) -> list[float]:
    return [*_one_hot(value, choices), float(value not in choices)]


def _general_encode(atom: AtomFields) -> np.ndarray:
    from rdkit.Chem import GetPeriodicTable

    return np.array(
        [
            *_one_hot_or_other(atom.number, GENERAL_ELEMENTS),
            *_one_hot_or_other(atom.degree, GENERAL_DEGREES),
            *_one_hot_or_other(atom.charge, GENERAL_CHARGES),
            *_one_hot_or_other(atom.num_hs, GENERAL_HYDROGENS),
            *_one_hot_or_other(atom.hybridization_name, GENERAL_HYBRIDIZATIONS),
            atom.aromatic,
            atom.in_ring,
            GetPeriodicTable().GetAtomicWeight(atom.number) / 100,
        ],
        np.float32,
    )


def _general_element(row: np.ndarray) -> int:
    """By the mass, which tells all elements apart but for a few synthetic ones, whose rows are the same."""
    return _elements_by_mass().get(float(row[-1]), 0)


@cache
def _elements_by_mass() -> dict[float, int]:
    from rdkit.Chem import GetPeriodicTable

    table = GetPeriodicTable()
    return {float(np.float32(table.GetAtomicWeight(number) / 100)): number for number in reversed(range(1, table.GetMaxAtomicNumber() + 1))}


def element_symbol(number: int) -> str:
    """Return the symbol of an atomic number, "*" for 0."""
    from rdkit.Chem import GetPeriodicTable

    return str(GetPeriodicTable().GetElementSymbol(number))


def _number(symbol: str) -> int:
    from rdkit.Chem import GetPeriodicTable

    return int(GetPeriodicTable().GetAtomicNumber(symbol))


_ZINC = "implicit", tuple(atom_type_name(*t) for t in ZINC_TYPES), _zinc_encode, _zinc_element
_GENERAL = "implicit", GENERAL_NAMES, _general_encode, _general_element
_VERSIONS = (
    AtomFeaturizer("qm9", 1, "explicit", QM9_NAMES, _qm9_encode, _qm9_element),
    AtomFeaturizer("zinc", 1, *_ZINC, keeps_isotopes=True),
    AtomFeaturizer("zinc", 2, *_ZINC),
    AtomFeaturizer("general", 1, *_GENERAL, keeps_isotopes=True),
    AtomFeaturizer("general", 2, *_GENERAL),
    AtomFeaturizer("qm9_charge", 1, "explicit", (*QM9_NAMES, "charge"), _qm9_charge_encode, _qm9_element),
)
FEATURIZERS = {featurizer.name: featurizer for featurizer in _VERSIONS}
"""The newest version of each, by name."""


def get_featurizer(features: str) -> AtomFeaturizer:
    """Return the featuriser of a name: the newest version, or an older one that is spelled out, as in "general:1".

    Raises:
        UserError: for another name or version.
    """
    name, colon, version = features.partition(":")
    if name not in FEATURIZERS:
        raise UserError(f"There are no features named '{features}'. Use one of: {', '.join(FEATURIZERS)}.")
    if not colon:
        return FEATURIZERS[name]
    versions = {str(featurizer.version): featurizer for featurizer in _VERSIONS if featurizer.name == name}
    if version not in versions:
        raise UserError(f"features={name} has no version '{version}' in this molgcn. There are: {', '.join(versions)}.")
    return versions[version]
