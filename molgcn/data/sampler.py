"""Which molecules each batch holds: the same on every device, loader and backend. Their order in it is what fills the tiles best."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from molgcn.data.segments import pointers
from molgcn.data.tiles import TILE_SIZES, plan_tiles, tile_size
from molgcn.errors import UserError


class BatchSpan(NamedTuple):
    """Where a batch lies in its epoch's plan, and its size."""

    first_graph: int
    first_node: int
    first_edge: int
    first_tile: int
    num_graphs: int
    num_nodes: int
    num_edges: int
    num_tiles: int


@dataclass(frozen=True)
class EpochPlan:
    """All batches of one epoch.

    Attributes:
        order: int64 [n], the molecules, batch after batch, within a batch tile after tile.
        batch_ptr: int64 [K + 1], first molecule of each batch in `order`.
        node_ptr: int64 [n + 1], first atom of each molecule of `order`, counted through the epoch.
        edge_ptr: int64 [n + 1], first bond of each.
        tile_ptr: int32, the batches' tile pointers one after the other, each starting with 0.
        tile_starts: int64 [K + 1], where each batch's tile pointers start.
    """

    order: np.ndarray
    batch_ptr: np.ndarray
    node_ptr: np.ndarray
    edge_ptr: np.ndarray
    tile_ptr: np.ndarray
    tile_starts: np.ndarray

    def __len__(self) -> int:
        return len(self.batch_ptr) - 1

    @cached_property
    def spans(self) -> list[BatchSpan]:
        """Where each batch lies; all at once, since NumPy takes microseconds for each look-up."""
        starts = np.stack([self.batch_ptr, self.node_ptr[self.batch_ptr], self.edge_ptr[self.batch_ptr], self.tile_starts])
        sizes = np.diff(starts) - np.array([[0], [0], [0], [1]])
        return [BatchSpan(*span) for span in np.concatenate([starts[:, :-1], sizes]).T.tolist()]

    def batch(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """The molecules int64 [B] and the tile pointers int32 [tiles + 1] of batch `number`."""
        molecules = self.order[self.batch_ptr[number] : self.batch_ptr[number + 1]]
        return molecules, self.tile_ptr[self.tile_starts[number] : self.tile_starts[number + 1]]


class MoleculeSampler:
    """Splits a set into batches: a seeded permutation per epoch, resumable between any two batches.

    With several ranks each epoch's permutation is dealt out in turn: disjoint shares, equal ones when shuffling (up to `world_size - 1`
    molecules, others every epoch, are then left out), and equal up to one molecule when not, so that validation sees every molecule.

    With `classes` an epoch is no permutation: as many molecules are drawn, with replacement, equally many of each class.

    Args:
        num_nodes: int [M], atoms a molecule.
        num_edges: int [M], bonds a molecule.
        batch_size: molecules a batch, B; the last batch may be shorter.
        shuffle: False takes the molecules in order.
        seed: of the permutations; with the epoch it decides everything.
        rank: this process, 0 ... world_size - 1.
        world_size: processes.
        drop_last: leave a short last batch out.
        join_single: let a single molecule that is left over join the batch before, which then has B + 1: batch norm needs two atoms.
        tile_nodes: node places of the tiles, T; default 64, or 128 where a molecule needs it.
        classes: float [M], the class of each molecule, of which epochs that are shuffled are to have equally many; NaN is never drawn.

    Raises:
        UserError: for a batch size, seed or tile size out of range, or fewer molecules than ranks (or, with `drop_last`, than one batch).
    """

    def __init__(
        self,
        num_nodes: np.ndarray,
        num_edges: np.ndarray,
        batch_size: int,
        shuffle: bool = True,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = False,
        join_single: bool = False,
        tile_nodes: int | None = None,
        classes: np.ndarray | None = None,
    ) -> None:
        if batch_size < 1:
            raise UserError(f"dataset.batch_size={batch_size}: expected at least 1.")
        if seed < 0:
            raise UserError(f"seed={seed}: expected 0 or a positive number.")
        if tile_nodes is not None and not 1 <= tile_nodes <= TILE_SIZES[-1]:
            raise UserError(f"tile_nodes={tile_nodes}: expected 1 to {TILE_SIZES[-1]}, the places of the largest tile.")
        if not 0 <= rank < world_size:
            raise ValueError(f"rank {rank} is outside 0 ... {world_size - 1}")
        self.num_nodes = np.ascontiguousarray(num_nodes, np.int64)
        self.num_edges = np.ascontiguousarray(num_edges, np.int64)
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.drop_last = drop_last
        self.join_single = join_single
        self.tile_nodes = tile_nodes or tile_size(int(self.num_nodes.max()))
        given = [] if classes is None else np.unique(classes[~np.isnan(classes)]).tolist()
        self._members = [np.flatnonzero(classes == one) for one in given]
        self.epoch = 0
        self.position = 0
        self._resume = 0
        if len(self.num_nodes) < world_size:
            raise UserError(
                f"{len(self.num_nodes)} molecules cannot be shared by {world_size} processes. Use fewer devices or more molecules."
            )
        if len(self) == 0:
            raise UserError(f"{self.share} molecules make no full batch of {batch_size}. Lower dataset.batch_size or keep the last batch.")

    @property
    def share(self) -> int:
        """Molecules an epoch of this rank."""
        total = len(self.num_nodes)
        return total // self.world_size if self.shuffle else len(range(self.rank, total, self.world_size))

    @property
    def largest_batch(self) -> int:
        """Molecules that a batch may have."""
        return self.batch_size + self._joins

    @property
    def repeats(self) -> bool:
        """Whether a batch may hold a molecule several times."""
        return self.shuffle and bool(self._members)

    @property
    def _joins(self) -> bool:
        return self.join_single and not self.drop_last and self.share > self.batch_size and self.share % self.batch_size == 1

    def __len__(self) -> int:
        """Batches an epoch."""
        return self.share // self.batch_size if self.drop_last or self._joins else -(-self.share // self.batch_size)

    def molecules(self, epoch: int) -> np.ndarray:
        """int64, the molecules of this rank in the given epoch, before they are put into tiles."""
        order = np.arange(len(self.num_nodes))
        if self.shuffle:
            generator = np.random.Generator(np.random.PCG64([self.seed, epoch]))
            if self._members:
                shares = np.array_split(order, len(self._members))  # of which only the lengths count
                drawn = [generator.choice(members, len(share)) for members, share in zip(self._members, shares, strict=True)]
                order = np.concatenate(drawn)
            generator.shuffle(order)
        return order[self.rank :: self.world_size][: len(self) * self.batch_size if self.drop_last else self.share]

    def plan(self, epoch: int) -> EpochPlan:
        """The batches of the given epoch."""
        order = np.ascontiguousarray(self.molecules(epoch))
        batch_ptr = np.append(np.arange(len(self)) * self.batch_size, len(order))
        tile_ptr, tile_starts = plan_tiles(order, batch_ptr, self.num_nodes, self.tile_nodes)
        return EpochPlan(order, batch_ptr, pointers(self.num_nodes[order]), pointers(self.num_edges[order]), tile_ptr, tile_starts)

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the next to be read, from its start; without effect while it is half read, so that a resumed epoch goes on."""
        if epoch != self.epoch or self.position >= len(self):
            self.epoch, self.position, self._resume = epoch, 0, 0

    def begin(self) -> int:
        """Starts reading the current epoch (the next one when all its batches were read); returns the first batch to read."""
        if self.position >= len(self):
            self.set_epoch(self.epoch + 1)
        self.position, self._resume = self._resume, 0
        return self.position

    def advance(self) -> None:
        """Counts one batch as read."""
        self.position += 1

    def __iter__(self) -> Iterator[list[int]]:
        """The rest of the current epoch as lists of indices, what `DataLoader(batch_sampler=...)` takes."""
        plan = self.plan(self.epoch)
        return (plan.batch(number)[0].tolist() for number in range(self.position, len(plan)))

    def state_dict(self) -> dict[str, int]:
        """Where the reading stands (epoch, and batches read of it) and what decides the batches."""
        return {"epoch": self.epoch, "position": self.position} | {name: value for name, (_, value) in self._identity().items()}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Goes on where `state_dict` was taken.

        Raises:
            UserError: when the state belongs to a run with other batches.
        """
        for name, (key, value) in self._identity().items():
            if state[name] != value:
                raise UserError(
                    f"The interrupted run had {key}={state[name]}, this one has {value}: its batches would not be the same. "
                    f"Resume with {key}={state[name]}, or start a new run."
                )
        self.epoch = state["epoch"]
        self.position = self._resume = state["position"]

    def _identity(self) -> dict[str, tuple[str, int]]:
        return {
            "seed": ("seed", self.seed),
            "batch_size": ("dataset.batch_size", self.batch_size),
            "world_size": ("number of processes", self.world_size),
            "num_molecules": ("number of molecules", len(self.num_nodes)),
        }
