"""The class of featurisers, which turn atoms and bonds into rows of numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from molgcn.data.featurizers.fields import AtomFields, BondFields


class UnsupportedAtomError(Exception):
    """Raised for an atom that a featuriser does not support. The text says which atom it is, and what is supported."""


@dataclass(frozen=True)
class Featurizer:
    """One way to turn the atoms and bonds of a molecule into feature rows. Isotopes are not read: [13C] has the row of C.

    What no featuriser reads is taken from molecules first, for their descriptors and fingerprints too (:mod:`molgcn.data.plain_molecule`).

    Attributes:
        name: key in :data:`molgcn.data.featurizers.FEATURIZERS`.
        version: number that goes up when rows change, so that cached sets are rebuilt. Older versions stay for models trained with them.
        hydrogens: "explicit" adds hydrogens as atoms after the heavy atoms. "implicit" counts each hydrogen at the atom to which it is
            bound, whatever its isotope. Those of [H][H] and [H+] are not bound to another element, and stay atoms.
        names: names of the F features of an atom.
        encode: function that turns the fields of an atom into float32 [F], and raises UnsupportedAtomError.
        element: function that returns the atomic number of a feature row, 0 for a dummy atom.
        bond_names: names of the D features of a bond. Empty for a version without bond features.
        encode_bond: function that turns the fields of a bond into float32 [D], or None. It supports every bond.
        stereo: how stereochemistry is read. "tags" takes RDKit's chiral tags and bond stereo, which depend on the order of atoms. "labels"
            takes the CIP labels of atoms and double bonds, which do not. "none" does not read it.
        kekulized: whether aromatic bonds are replaced by the single and double bonds of a Kekulé form, which depends on the order of atoms.
            Atoms are read as they are.
        keeps_isotopes: whether hydrogens that RDKit keeps by default, such as [2H], are atoms, as in version 1 of general.
        superseded: whether there is a newer version.
        stereo_off: whether stereochemistry, which the featuriser can read, was turned off.
    """

    name: str
    version: int
    hydrogens: str
    names: tuple[str, ...]
    encode: Callable[[AtomFields], np.ndarray]
    element: Callable[[np.ndarray], int]
    bond_names: tuple[str, ...] = ()
    encode_bond: Callable[[BondFields], np.ndarray] | None = None
    stereo: Literal["none", "tags", "labels"] = "none"
    kekulized: bool = False
    keeps_isotopes: bool = False
    superseded: bool = False
    stereo_off: bool = False

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
        return f"{self.name}:{self.version}" + (f":{NO_STEREO}" if self.stereo_off else "")

    def without_stereo(self) -> Featurizer:
        """Return the featuriser that treats the stereochemistry of every molecule as unknown."""
        return self if self.stereo == "none" else replace(self, stereo="none", stereo_off=True)


NO_STEREO = "no_stereo"


def one_hot(value: object, choices: Sequence[object]) -> list[float]:
    """Return the one-hot encoding of a value among the choices, which is all 0 for any other value."""
    return [float(value == choice) for choice in choices]


def one_hot_or_other(value: object, choices: Sequence[object]) -> list[float]:
    """Return the one-hot encoding of a value among the choices, with a last entry for any other value."""
    return [*one_hot(value, choices), float(value not in choices)]
