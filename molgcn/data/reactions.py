"""Reads reactions with atom maps, and condenses the graphs of their two sides into one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from molgcn.data.featurizers.fields import AtomFields, BondFields
from molgcn.data.mol_bytes import MolBytes
from molgcn.data.molecules import InvalidMoleculeError, read_mapped
from molgcn.data.reaction_smiles import sides_of

ABSENT_ATOM = AtomFields(number=255).packed()
ABSENT_BOND = BondFields(type=255).packed()
ATOM_SIDES = np.dtype([("reactant", np.uint64), ("product", np.uint64)])
"""The packed fields of an atom of a condensed graph on both sides, :data:`ABSENT_ATOM` where it is not."""
BOND_SIDES = np.dtype([("reactant", np.uint32), ("product", np.uint32)])
"""The packed fields of a bond of a condensed graph on both sides, :data:`ABSENT_BOND` where it is not."""
_SIDES = ("reactants", "products")
_EXPECTED = "expected reactants>>products or reactants>agents>products, with atom maps as in [CH3:1][Br:2].[OH-:3]>>[CH3:1][OH:3].[Br-:2]"


class Reaction(NamedTuple):
    """A reaction of R reactant atoms, those of agents included, and P product atoms.

    The atoms of its condensed graph are those of the reactants in order, then the product atoms that no reactant atom becomes.
    """

    reactants: Any  # `rdkit.Chem.Mol` of the reactants and agents
    products: Any  # `rdkit.Chem.Mol` of the products
    becomes: np.ndarray  # int64 [R], the product atom that each reactant atom becomes, -1 for none

    @property
    def places(self) -> np.ndarray:
        """The atom of the condensed graph that each product atom is, int64 [P]."""
        places = np.full(self.products.GetNumAtoms(), -1)
        kept = np.flatnonzero(self.becomes >= 0)
        places[self.becomes[kept]] = kept
        new = np.flatnonzero(places < 0)
        places[new] = len(self.becomes) + np.arange(len(new))
        return places


def unchanged(mol: Any) -> Reaction:
    """Return the reaction in which nothing happens to a molecule."""
    return Reaction(mol, mol, np.arange(mol.GetNumAtoms()))


def read_reaction(text: Any) -> Reaction:
    """Read a reaction SMILES with atom maps. Agents are part of the reactants, as in Chemprop.

    Hydrogens with an atom map are atoms, all others are counted. Isotopes are taken away. An atom that only one side has may have a map or
    not.

    Raises:
        InvalidMoleculeError: with the reason, for a text that is not a reaction, a side that is not a molecule, a map that occurs twice on
            a side or changes its element, a reaction without an atom that is mapped on both sides, or one with atoms without a map on
            both sides, which may be the same.
    """
    sides = sides_of(text) if isinstance(text, str) else None
    if sides is None:
        raise InvalidMoleculeError(f"it is not a reaction: {_EXPECTED}")
    for name in _SIDES:
        if not getattr(sides, name):
            raise InvalidMoleculeError(f"it has no {name}: {_EXPECTED}")
    reactants, products = (_read(name, getattr(sides, name)) for name in _SIDES)
    own, after = _taken_maps(reactants), _taken_maps(products)
    before = own
    if sides.agents:
        reactants = _read("agents", f"{sides.reactants}.{sides.agents}")
        before = _taken_maps(reactants)
    becomes = _becomes(reactants, products, before, after)
    if not all(own) and not all(after):
        raise InvalidMoleculeError(
            f"atoms of both sides have no atom map: {_few(reactants, own)} of its reactants and {_few(products, after)} of its products, "
            "so that the same atom may count twice; map all atoms of one side at least"
        )
    return Reaction(reactants, products, becomes)


def _taken_maps(mol: Any) -> list[int]:
    """Return the atom map of each atom, 0 for none, and take the maps away."""
    atoms = [mol.GetAtomWithIdx(index) for index in range(mol.GetNumAtoms())]
    maps = [atom.GetAtomMapNum() for atom in atoms]
    for atom in atoms:
        atom.SetAtomMapNum(0)
    return maps


def _becomes(reactants: Any, products: Any, before: list[int], after: list[int]) -> np.ndarray:
    """Return the product atom that each reactant atom becomes by the atom maps of both, int64 [R], -1 for none."""
    places = [_places(name, maps) for name, maps in zip(_SIDES, (before, after), strict=True)]
    becomes = np.full(len(before), -1)
    for number in places[0].keys() & places[1].keys():
        one, other = (mol.GetAtomWithIdx(place[number]).GetSymbol() for mol, place in zip((reactants, products), places, strict=True))
        if one != other:
            raise InvalidMoleculeError(
                f"an atom map changes its element: {number} is {one} in its reactants and {other} in its products; correct the maps"
            )
        becomes[places[0][number]] = places[1][number]
    if (becomes < 0).all():
        raise InvalidMoleculeError(
            "no atom of its reactants has the atom map of an atom of its products, so that nothing says which atom becomes which; map "
            "it, for example with RXNMapper"
        )
    return becomes


def _read(name: str, smiles: str) -> Any:
    try:
        return read_mapped(smiles)
    except InvalidMoleculeError as error:
        raise InvalidMoleculeError(f"its {name} cannot be read: {error}") from error


def _places(name: str, maps: list[int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for place, number in enumerate(maps):
        if number in found:
            raise InvalidMoleculeError(f"an atom map stands twice in its {name}: {number}; give each atom of a side a number of its own")
        if number:
            found[number] = place
    return found


def _few(mol: Any, maps: list[int]) -> str:
    """Return how many atoms have no map, and the elements of the first ones."""
    symbols = [mol.GetAtomWithIdx(place).GetSymbol() for place, number in enumerate(maps) if not number]
    return f"{len(symbols)} ({', '.join(symbols[:5])}{', ...' if len(symbols) > 5 else ''})"


def condensed(reaction: Reaction, read: Callable[[Any], MolBytes], balanced: bool) -> MolBytes:
    """Return the bytes of a condensed graph, with the atoms and bonds of both sides as read from each.

    The bytes are those of :data:`ATOM_SIDES` for each atom, of the two ends as uint16 for each bond, and of :data:`BOND_SIDES` for each
    bond. With `balanced` an atom that one side lacks is the same on both, and so is a bond between two of them.
    """
    places = [np.arange(len(reaction.becomes)), reaction.places]
    count = int(max(places[0].max(), places[1].max())) + 1
    atoms = np.full((count, 2), ABSENT_ATOM, np.uint64)
    keys, values = [], []
    for side, (mol, place) in enumerate(zip(reaction[:2], places, strict=True)):
        own, ends, bonds = read(mol)
        atoms[place, side] = np.frombuffer(own, np.uint64)
        pairs = np.sort(place[np.frombuffer(ends, np.uint16).reshape(-1, 2)], axis=1)
        keys.append(pairs[:, 0] * count + pairs[:, 1])
        values.append(np.frombuffer(bonds, np.uint32))
    found = np.unique(np.concatenate(keys))
    both = np.full((len(found), 2), ABSENT_BOND, np.uint32)
    for side in (0, 1):
        both[np.searchsorted(found, keys[side]), side] = values[side]
    joined = np.stack([found // count, found % count], axis=1)
    if balanced:
        lacking = atoms == ABSENT_ATOM
        for side in (0, 1):
            alone, inner = lacking[:, side], lacking[joined, side].all(axis=1)
            atoms[alone, side] = atoms[alone, 1 - side]
            both[inner, side] = both[inner, 1 - side]
    return atoms.tobytes(), joined.astype(np.uint16).tobytes(), both.tobytes()
