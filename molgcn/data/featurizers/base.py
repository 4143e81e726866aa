"""The class of featurisers, which turn atoms and bonds into rows of numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from molgcn.data.featurizers.fields import AtomFields, BondFields
from molgcn.errors import UserError


class UnsupportedAtomError(Exception):
    """Raised for an atom that a featuriser does not support. The text says which atom it is, and what is supported."""


@dataclass(frozen=True)
class Columns:
    """Neighbouring columns of feature rows, which describe one thing about atoms or bonds."""

    names: tuple[str, ...]  # names of the columns
    # function that returns their values for the fields of an atom or a bond. It may raise UnsupportedAtomError
    values: Callable[[Any], Sequence[float]]


def number(name: str, read: Callable[[Any], float]) -> Columns:
    """Return one column that holds what `read` returns."""
    return Columns((name,), lambda fields: [read(fields)])


def one_hot(read: Callable[[Any], object], choices: Iterable[object], names: Iterable[str], other: str | None = None) -> Columns:
    """Return a column for each choice, 1 where `read` returns it, and a last one for any other value if `other` names it."""
    known = tuple(choices)

    def values(fields: Any) -> list[float]:
        value = read(fields)
        row = [float(value == choice) for choice in known]
        return row if other is None else [*row, float(value not in known)]

    return Columns((*names, *([] if other is None else [other])), values)


@dataclass(frozen=True)
class Featurizer:
    """One way to turn the atoms and bonds of a molecule into feature rows. Isotopes are not read: [13C] has the row of C.

    What no featuriser reads is taken from molecules first, for their descriptors and fingerprints too (:mod:`molgcn.data.plain_molecule`).
    """

    name: str  # key in `molgcn.data.featurizers.FEATURIZERS`
    version: int  # number that goes up when rows change, so that cached sets are rebuilt. Older versions stay for models trained with them
    # "explicit" adds hydrogens as atoms after the heavy atoms. "implicit" counts each hydrogen at the atom to which it is bound, whatever
    # its isotope. Those of [H][H] and [H+] are not bound to another element, and stay atoms
    hydrogens: str
    atoms: tuple[Columns, ...]  # the columns of an atom's row
    element: Callable[[np.ndarray], int]  # function that returns the atomic number of a feature row, 0 for a dummy atom
    bonds: tuple[Columns, ...] = ()  # the columns of a bond's row, which support every bond. Empty for a version without bond features
    # how stereochemistry is read. "tags" takes RDKit's chiral tags and bond stereo, which depend on the order of atoms. "labels" takes the
    # CIP labels of atoms and double bonds, which do not. "none" does not read it
    stereo: Literal["none", "tags", "labels"] = "none"
    # whether aromatic bonds are replaced by the single and double bonds of a Kekulé form, which depends on the order of atoms. Atoms are
    # read as they are
    kekulized: bool = False
    keeps_isotopes: bool = False  # whether hydrogens that RDKit keeps by default, such as [2H], are atoms, as in version 1 of general
    superseded: bool = False  # whether there is a newer version
    stereo_off: bool = False  # whether stereochemistry, which the featuriser can read, was turned off
    has_hydrogens: bool = False  # whether its columns describe hydrogen atoms too, so that hydrogens can be made atoms
    hydrogens_added: bool = False  # whether hydrogens were made atoms. The columns then describe atoms as RDKit does after `Chem.AddHs`

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the F features of an atom."""
        return tuple(name for columns in self.atoms for name in columns.names)

    @property
    def bond_names(self) -> tuple[str, ...]:
        """Names of the D features of a bond."""
        return tuple(name for columns in self.bonds for name in columns.names)

    def encode(self, atom: AtomFields) -> np.ndarray:
        """Return the row of an atom, float32 [F], or raise UnsupportedAtomError."""
        if self.hydrogens_added:
            atom = atom._replace(degree=atom.degree + atom.hidden_hs, hidden_hs=0, explicit_hs=0)
        return np.array([value for columns in self.atoms for value in columns.values(atom)], np.float32)

    def encode_bond(self, bond: BondFields) -> np.ndarray:
        """Return the row of a bond, float32 [D]."""
        return np.array([value for columns in self.bonds for value in columns.values(bond)], np.float32)

    @property
    def num_features(self) -> int:
        """Number of features of an atom, F."""
        return len(self.names)

    @property
    def num_bond_features(self) -> int:
        """Number of features of a bond, D, 0 without bond features."""
        return len(self.bond_names)

    @property
    def tag_columns(self) -> list[int]:
        """Positions of the atom features that are RDKit's chiral tags, which depend on the order of atoms."""
        tags = [place for place, name in enumerate(self.names) if name.startswith("chi_") or name == "other_chirality"]
        return tags if self.stereo == "tags" else []

    @property
    def spelled(self) -> str:
        """Name for :func:`molgcn.data.featurizers.get_featurizer`, with the version only if there is a newer one, as in "general:1"."""
        return self.versioned if self.superseded else self.versioned.replace(f":{self.version}", "")

    @property
    def versioned(self) -> str:
        """Name that always has the version, as in "general:3:no_stereo", since a plain name may later mean a newer one."""
        flags = (HYDROGENS if self.hydrogens_added else "", NO_STEREO if self.stereo_off else "")
        return ":".join([self.name, str(self.version), *filter(None, flags)])

    def without_stereo(self) -> Featurizer:
        """Return the featuriser that treats the stereochemistry of every molecule as unknown."""
        return self if self.stereo == "none" else replace(self, stereo="none", stereo_off=True)

    def with_hydrogens(self) -> Featurizer:
        """Return the featuriser that takes hydrogens as atoms behind the heavy ones.

        Raises:
            UserError: when its columns do not describe hydrogen atoms.
        """
        if self.hydrogens == "explicit":
            return self
        if not self.has_hydrogens:
            raise UserError(
                f"dataset.explicit_hydrogens=true does not go with features={self.spelled}, which does not describe hydrogen atoms. Use "
                "features=general, ogb or chemprop, or qm9, whose hydrogens are always atoms."
            )
        return replace(self, hydrogens="explicit", hydrogens_added=True)


NO_STEREO = "no_stereo"
HYDROGENS = "explicit_hydrogens"
