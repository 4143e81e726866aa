"""Rows of what is predicted where atoms or bonds have targets: one for each molecule, then for each atom, then for each directed bond.

Without such targets the rows of a set are its molecules. With them its targets are a matrix [R, T], in which each row has values of the
targets of its own level and NaN elsewhere, so that losses, statistics and metrics need not know of levels.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np

from molgcn.data.segments import segment_index
from molgcn.errors import UserError
from molgcn.files.column import Column, Lists

if TYPE_CHECKING:
    from molgcn.data.molecule_set import MoleculeSet

Level = Literal["atom", "bond"]
GRAPH_LEVELS: tuple[Level, ...] = ("atom", "bond")


@dataclass(frozen=True)
class Levels:
    """The levels of T targets: those of molecules come first, then those of atoms, then those of bonds."""

    molecule: int  # number of targets of molecules
    atom: int = 0  # number of targets of atoms
    bond: int = 0  # number of targets of bonds

    @classmethod
    def of(cls, molecules: MoleculeSet) -> Levels:
        """Return the levels of a set's targets."""
        atom, bond = (0 if values is None else values.shape[1] for values in (molecules.atom_targets, molecules.bond_targets))
        return cls(len(molecules.target_names) - atom - bond, atom, bond)

    def __bool__(self) -> bool:
        """Return whether any target is of atoms or bonds."""
        return self.atom + self.bond > 0

    @property
    def counts(self) -> dict[str, int]:
        """The number of targets of each level that has rows, in the order of the rows."""
        below = {level: count for level, count in (("atom", self.atom), ("bond", self.bond)) if count}
        return {"molecule": self.molecule, **below}

    @property
    def of_targets(self) -> list[str]:
        return [level for level, count in self.counts.items() for _ in range(count)]

    def places(self, level: str) -> list[int]:
        """Return the places of a level's targets."""
        return [place for place, own in enumerate(self.of_targets) if own == level]

    def check_none(self, what: str, instead: str) -> None:
        """Raise UserError for a command or option that does not go with targets of atoms and bonds."""
        if self:
            raise UserError(f"{what} does not go with targets of atoms or bonds. {instead}")


@dataclass(frozen=True)
class Rows:
    """The rows of a set whose targets have levels."""

    molecules: MoleculeSet  # M molecules with N atoms and E directed bonds
    levels: Levels  # the levels of the targets. Without any of atoms and bonds, the rows are the molecules

    @classmethod
    def of(cls, molecules: MoleculeSet) -> Rows:
        """Return the rows of a set with targets."""
        return cls(molecules, Levels.of(molecules))

    @property
    def _sizes(self) -> dict[str, int]:
        """The number of rows of each level that has some, in their order."""
        sizes = {"molecule": len(self.molecules), "atom": self.molecules.num_nodes, "bond": self.molecules.num_edges}
        return {level: sizes[level] for level in self.levels.counts}

    def __len__(self) -> int:
        return sum(self._sizes.values())

    def at(self, indices: np.ndarray) -> np.ndarray:
        """Return the rows of the molecules at `indices`, int64, in the order of the rows of a set or batch of these molecules."""
        if not self.levels:
            return indices
        places, _, _ = self.molecules.places_of(indices)
        first, found = 0, []
        for level, size in self._sizes.items():
            found.append(first + places[level])
            first += size
        return np.concatenate(found)

    @cached_property
    def molecule(self) -> np.ndarray:
        """The molecule of each row, int64 [R]."""
        number = np.arange(len(self.molecules))
        sizes = {"molecule": np.ones_like(number), "atom": self.molecules.num_nodes_per_graph, "bond": np.diff(self.molecules.edge_ptr)}
        return np.concatenate([np.repeat(number, sizes[level]) for level in self.levels.counts])

    @cached_property
    def targets(self) -> np.ndarray:
        """The targets [R, T] in the set's dtype, NaN where missing."""
        targets = self.molecules.targets
        if not self.levels:
            return targets
        found = np.full((len(self), targets.shape[1]), np.nan, targets.dtype)
        found[: len(targets)] = targets
        first = len(targets)
        for level, values in (("atom", self.molecules.atom_targets), ("bond", self.molecules.bond_targets)):
            if values is not None and level in self.levels.counts:
                found[first : first + len(values), self.levels.places(level)] = values
                first += len(values)
        return found

    @property
    def counts(self) -> dict[str, int]:
        """The number of molecules, atoms and bonds that have rows, a bond counted once."""
        return {level: size // 2 if level == "bond" else size for level, size in self._sizes.items()}

    @property
    def number(self) -> np.ndarray:
        """The number of each row's atom or bond in its molecule, int64 [R], as RDKit counts them; 0 for a molecule. A set with targets."""
        molecules, found = self.molecules, [np.zeros(len(self.molecules), np.int64)]
        if "atom" in self.levels.counts:
            found.append(segment_index(np.zeros(len(molecules), np.int64), molecules.num_nodes_per_graph))
        if "bond" in self.levels.counts:
            assert molecules.bond_number is not None
            found.append(molecules.bond_number.astype(np.int64))
        return np.concatenate(found)

    def column(self, target: int, column: Column) -> Column:
        """Return a column of R rows as one of M molecules, which for a target of atoms or bonds has a list in RDKit's order for each."""
        if not self.levels:
            return column
        level, count = self.levels.of_targets[target], len(self.molecules)
        if level == "molecule":
            return Column(column.name, column.values[:count], column.digits, column.are_probabilities)
        first, order, ends = count, np.arange(self.molecules.num_nodes), self.molecules.node_ptr
        if level == "bond":
            first += self._sizes.get("atom", 0)
            order, ends = bonds_in_order(self.molecules)
        return Lists(column.name, column.values[first + order], column.digits, column.are_probabilities, ends)


def bonds_in_order(molecules: MoleculeSet) -> tuple[np.ndarray, np.ndarray]:
    """Return one direction of each bond in RDKit's order, int64 [E / 2], and the first of each molecule's, int64 [M + 1].

    It is the one whose source has the lower number, at which targets of bonds stand. The set has `bond_number`.
    """
    assert molecules.bond_number is not None
    target = segment_index(np.zeros(len(molecules), np.int64), molecules.num_nodes_per_graph)  # the number of each atom in its molecule
    forward = np.flatnonzero(molecules.neighbors < np.repeat(target, molecules.degree))
    molecule = np.repeat(np.arange(len(molecules)), np.diff(molecules.edge_ptr))[forward]
    return forward[np.lexsort((molecules.bond_number[forward], molecule))], molecules.edge_ptr // 2
