"""Features of a condensed graph of a reaction, whose atoms and bonds have a state before and one after the reaction.

A mode says which two halves a row has, as the `--rxn-mode`s of Chemprop do. The second half of an atom's row has no columns for its
element, which stays the same. Source: Heid and Green, J. Chem. Inf. Model. 62, 2101, 2022.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial

import numpy as np

from molgcn.data.featurizers.base import Featurizer
from molgcn.data.featurizers.fields import AtomFields, BondFields
from molgcn.errors import UserError

_BALANCE = "_balance"
_HALVES = {"reac_prod": ("reactant", "product"), "reac_diff": ("reactant", "change"), "prod_diff": ("product", "change")}
MODES = tuple(f"{name}{balance}" for name in _HALVES for balance in ("", _BALANCE))
"""The modes: reactants and products side by side, or one of them and the change from reactants to products.

An atom that only one side has keeps only its element on the other side. With "_balance" it is the same there, with its bonds to others of
its kind.
"""
DEFAULT_MODE = "reac_diff"


@dataclass(frozen=True)
class ReactionFeaturizer(Featurizer):
    """A featuriser of molecules that describes both sides of reactions."""

    mode: str = DEFAULT_MODE  # what a row has, one of `MODES`
    reactions: tuple[int, ...] = (0,)  # the components of a row that are reactions, by number. Others are molecules, the same on both sides

    @classmethod
    def of(cls, featurizer: Featurizer, mode: str, reactions: tuple[int, ...] = (0,)) -> ReactionFeaturizer:
        """Return the featuriser that describes both sides by one of molecules.

        Raises:
            UserError: when the featuriser takes hydrogens as atoms, which have no atom maps, or has no columns of elements or of bonds.
        """
        if featurizer.hydrogens != "implicit" or featurizer.kekulized or featurizer.keeps_isotopes or not featurizer.bonds:
            without = " without dataset.explicit_hydrogens" if featurizer.hydrogens_added else ""
            raise UserError(f"features={featurizer.spelled} cannot describe reactions. Use features=general, ogb or chemprop{without}.")
        values = {field.name: getattr(featurizer, field.name) for field in fields(Featurizer)}
        values["has_hydrogens"] = False
        values["element"] = partial(_element, featurizer.element, featurizer.num_features, len(featurizer.atoms[0].names))
        return cls(**values, mode=mode, reactions=reactions)

    @property
    def balanced(self) -> bool:
        """Whether atoms that only one side has are the same on the other."""
        return self.mode.endswith(_BALANCE)

    @property
    def _halves(self) -> tuple[str, str]:
        return _HALVES[self.mode.removesuffix(_BALANCE)]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the features of an atom."""
        first, second = self._halves
        own = super().names
        return (*(f"{first}_{name}" for name in own), *(f"{second}_{name}" for name in own[self._num_elements :]))

    @property
    def bond_names(self) -> tuple[str, ...]:
        return tuple(f"{half}_{name}" for half in self._halves for name in super(ReactionFeaturizer, self).bond_names)

    @property
    def tag_columns(self) -> list[int]:
        """Positions of the atom features that are RDKit's chiral tags, in both halves."""
        own, width = super().tag_columns, len(super().names) - self._num_elements
        return [*own, *(place + width for place in own)]

    @property
    def versioned(self) -> str:
        """Name that always has the version and the mode, as in "general:3:reac_diff"."""
        return f"{super().versioned}:{self.described}"

    @property
    def described(self) -> str:
        """The mode, followed by "@1" where component 1 is the reaction and not 0, as in "reac_diff@1"."""
        return self.mode if self.reactions == (0,) else f"{self.mode}@{'+'.join(map(str, self.reactions))}"

    @property
    def _num_elements(self) -> int:
        return len(self.atoms[0].names)

    def encode_sides(self, reactant: AtomFields | None, product: AtomFields | None) -> np.ndarray:
        """Return the row of an atom by its states in reactants and products, float32 [F]. One may be None, where the atom is not."""
        there = [None if atom is None else self.encode(atom) for atom in (reactant, product)]
        before, after = (self._only_element(there[1 - side]) if row is None else row for side, row in enumerate(there))
        first, second = self._chosen(before, after)
        return np.concatenate([first, second[self._num_elements :]])

    def encode_bond_sides(self, reactant: BondFields | None, product: BondFields | None) -> np.ndarray:
        """Return the row of a bond by its states in reactants and products, float32 [D]. One may be None, where there is no bond."""
        no_bond = np.array([name == "no_bond" for name in super().bond_names], np.float32)
        return np.concatenate(self._chosen(*(no_bond if bond is None else self.encode_bond(bond) for bond in (reactant, product))))

    def _only_element(self, row: np.ndarray | None) -> np.ndarray:
        assert row is not None
        return np.where(np.arange(len(row)) < self._num_elements, row, 0).astype(np.float32)

    def _chosen(self, before: np.ndarray, after: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values = {"reactant": before, "product": after, "change": after - before}
        first, second = self._halves
        return values[first], values[second]


def _element(element: Callable[[np.ndarray], int], width: int, num_elements: int, row: np.ndarray) -> int:
    """Return the atomic number of a row, found in the half of the side where the atom is."""
    own = row[:width]
    if not own[num_elements:].any():  # the atom is on the other side, whose half is its row or, as a change, minus its row
        own = np.concatenate([own[:num_elements], np.abs(row[width:])])
    return element(own)
