"""What a featuriser is: how atoms and bonds become rows of numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from molgcn.data.featurizers.fields import AtomFields, BondFields


class UnsupportedAtomError(Exception):
    """An atom that a featuriser has no row for; the text says which and what it takes."""


@dataclass(frozen=True)
class Featurizer:
    """One way to turn the atoms and bonds of a molecule into feature rows. Isotopes are not read: [13C] has the row of C.

    Attributes:
        name: key in :data:`molgcn.data.featurizers.FEATURIZERS`.
        version: goes up when rows change, so that cached sets are rebuilt; older versions stay for what was trained with them.
        hydrogens: "explicit" (added, after the heavy atoms) or "implicit" (counted at the atom that each is bound to, whatever its isotope;
            those of [H][H] and [H+] are bound to no other element, and stay).
        names: one name a feature of an atom, F.
        encode: turns what was read from an atom into float32 [F]; raises UnsupportedAtomError.
        element: the atomic number of the atom that a feature row stands for, 0 for a dummy.
        bond_names: one name a feature of a bond, D; none in versions that are older than bonds.
        encode_bond: turns what was read from a bond into float32 [D]; no bond is refused.
        stereo: what is read of stereochemistry: "none", "tags" (RDKit's chiral tags and bond stereo, which depend on the order of atoms) or
            "labels" (CIP labels of atoms and double bonds, which do not).
        kekulized: whether bonds are those of a Kekulé form, single or double, in place of aromatic ones. Which form depends on the order of
            atoms. Atoms are read as they are.
        keeps_isotopes: implicit hydrogens that RDKit's reading leaves, such as [2H], are atoms. Version 1 of zinc and general did that.
        superseded: whether there is a newer version.
        stereo_off: whether it would read stereochemistry, and was told not to.
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
        """Length of an atom's feature row, F."""
        return len(self.names)

    @property
    def num_bond_features(self) -> int:
        """Length of a bond's feature row, D; 0 without bonds."""
        return len(self.bond_names)

    @property
    def counts_hydrogens(self) -> bool:
        """Whether hydrogens are counted at the atoms that they are bound to, also those that are atoms of the molecule as it is read."""
        return self.hydrogens == "implicit" and not self.keeps_isotopes

    @property
    def spelled(self) -> str:
        """What :func:`molgcn.data.featurizers.get_featurizer` takes: the name, and what it does not say, as in "general:2"."""
        return self.versioned if self.superseded else self.versioned.replace(f":{self.version}", "")

    @property
    def versioned(self) -> str:
        """The same with the version in any case, since a name means a newer one some day, as in "general:3:no_stereo"."""
        return f"{self.name}:{self.version}" + (f":{NO_STEREO}" if self.stereo_off else "")

    def without_stereo(self) -> Featurizer:
        """Return the featuriser that gives every molecule the rows of one whose stereochemistry is not known."""
        return self if self.stereo == "none" else replace(self, stereo="none", stereo_off=True)


NO_STEREO = "no_stereo"


def one_hot(value: object, choices: Sequence[object]) -> list[float]:
    """Return 1 at the place of the value among the choices and 0 elsewhere; all are 0 for another value."""
    return [float(value == choice) for choice in choices]


def one_hot_or_other(value: object, choices: Sequence[object]) -> list[float]:
    """Return :func:`one_hot` and a last place for any other value."""
    return [*one_hot(value, choices), float(value not in choices)]
