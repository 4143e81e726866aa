"""Plans the batches of each epoch, equally for every device, loader and backend, and orders molecules so that they fill tiles well."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from molgcn.data.segments import pointers
from molgcn.data.tiles import TILE_SIZES, plan_tiles, tile_size
from molgcn.errors import UserError, counted


class BatchSpan(NamedTuple):
    """The position of a batch in its epoch's plan, and its size."""

    first_graph: int  # first molecule of the batch in the plan's `order`
    first_node: int  # first atom, counted through the epoch
    first_edge: int  # first directed bond, counted through the epoch
    first_tile: int  # start of the batch in the plan's `tile_ptr`
    num_graphs: int  # number of molecules
    num_nodes: int  # number of atoms
    num_edges: int  # number of directed bonds
    num_tiles: int  # number of tiles


@dataclass(frozen=True)
class EpochPlan:
    """The plan of one epoch: n molecules in K batches."""

    order: np.ndarray  # int64 [n], the molecules, batch after batch, and within a batch tile after tile
    batch_ptr: np.ndarray  # int64 [K + 1], first molecule of each batch in `order`
    node_ptr: np.ndarray  # int64 [n + 1], first atom of each molecule of `order`, counted through the epoch
    edge_ptr: np.ndarray  # int64 [n + 1], first directed bond of each molecule of `order`, counted through the epoch
    tile_ptr: np.ndarray  # int32, the tile pointers of all batches one after the other, each starting with 0
    tile_starts: np.ndarray  # int64 [K + 1], start of each batch in `tile_ptr`
    room: int = 0  # the most molecules that another epoch's plan has, or fewer

    def __len__(self) -> int:
        return len(self.batch_ptr) - 1

    @cached_property
    def spans(self) -> list[BatchSpan]:
        """The spans of all batches, computed at once, since NumPy takes microseconds for each look-up."""
        starts = np.stack([self.batch_ptr, self.node_ptr[self.batch_ptr], self.edge_ptr[self.batch_ptr], self.tile_starts])
        sizes = np.diff(starts) - np.array([[0], [0], [0], [1]])
        return [BatchSpan(*span) for span in np.concatenate([starts[:, :-1], sizes]).T.tolist()]

    def batch(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the molecules int64 [B] and the tile pointers int32 [tiles + 1] of batch `number`."""
        molecules = self.order[self.batch_ptr[number] : self.batch_ptr[number + 1]]
        return molecules, self.tile_ptr[self.tile_starts[number] : self.tile_starts[number + 1]]


class MoleculeSampler:
    """Splits a set into batches by a seeded permutation for each epoch, and can be resumed between any two batches.

    With several ranks, each rank takes every `world_size`-th molecule of the permutation, so that shares are disjoint. When shuffling,
    shares have equal sizes, and up to `world_size - 1` molecules, different ones in each epoch, are left out. Without shuffling no molecule
    is left out, so that validation sees all, and the sizes differ by at most one.

    An epoch that other ranks had begun goes on after the molecules that they have read. It keeps its number of batches, of which the first
    are empty and not read.

    With `classes`, an epoch is not a permutation. The same number of molecules is drawn with replacement, equally many of each class.

    Args:
        num_nodes: int [M], number of atoms of each molecule.
        num_edges: int [M], number of directed bonds of each molecule.
        batch_size: number of molecules in a batch, B. The last batch may be smaller.
        shuffle: whether each epoch has a new permutation. False keeps the order of the set.
        seed: seed of the permutations.
        rank: number of this process, 0 ... world_size - 1. Each process reads its own share.
        world_size: number of processes.
        drop_last: whether a smaller last batch is left out.
        join_single: whether a single molecule that is left over joins the batch before, since batch norm needs two atoms.
        tile_nodes: number of atoms that a tile has room for. Default: 64, or 128 where a molecule needs it.
        classes: float [M], class of each molecule, for shuffled epochs. Molecules of class NaN are never drawn.
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
            raise UserError(f"tile_nodes={tile_nodes}: expected 1 to {TILE_SIZES[-1]}, the nodes of the largest tile.")
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
        self._begun = (0, 0)  # an epoch that other ranks have begun, and how many molecules they have read of it
        if len(self.num_nodes) < world_size:
            raise UserError(
                f"{counted(len(self.num_nodes), 'molecule')} cannot be shared by {world_size} processes. Use fewer devices "
                "or more molecules."
            )
        if len(self) == 0:
            raise UserError(
                f"{counted(self.share, 'molecule')} cannot fill a batch of {batch_size}. Lower dataset.batch_size or keep the last batch."
            )

    @property
    def share(self) -> int:
        """Number of molecules that this rank reads in an epoch."""
        return self._share(len(self.num_nodes))

    @property
    def largest_batch(self) -> int:
        """Largest number of molecules that a batch may have."""
        return self.batch_size + self._joins(self.share)

    @property
    def repeats(self) -> bool:
        """Whether a batch may hold a molecule several times."""
        return self.shuffle and bool(self._members)

    def _share(self, total: int) -> int:
        return total // self.world_size if self.shuffle else len(range(self.rank, total, self.world_size))

    def _joins(self, share: int) -> bool:
        return self.join_single and not self.drop_last and share > self.batch_size and share % self.batch_size == 1

    def _num_batches(self, share: int) -> int:
        return share // self.batch_size if self.drop_last or self._joins(share) else -(-share // self.batch_size)

    def __len__(self) -> int:
        return self._num_batches(self.share)

    def _num_molecules(self, read: int) -> int:
        """Return the number of molecules that this rank reads of an epoch of which others have read some."""
        share = self._share(len(self.num_nodes) - read)
        return self._num_batches(share) * self.batch_size if self.drop_last else share

    def _read_before(self, epoch: int) -> int:
        return self._begun[1] if epoch == self._begun[0] else 0

    def _first(self, epoch: int) -> int:
        """Return the number of the first batch that this rank reads of an epoch, 0 unless other ranks had begun it."""
        return len(self) - self._num_batches(self._share(len(self.num_nodes) - self._read_before(epoch)))

    def molecules(self, epoch: int) -> np.ndarray:
        """Return the molecules of this rank in the given epoch, int64 [n], before they are ordered by tiles."""
        order = np.arange(len(self.num_nodes))
        if self.shuffle:
            generator = np.random.Generator(np.random.PCG64([self.seed, epoch]))
            if self._members:
                shares = np.array_split(order, len(self._members))  # only the lengths matter
                drawn = [generator.choice(members, len(share)) for members, share in zip(self._members, shares, strict=True)]
                order = np.concatenate(drawn)
            generator.shuffle(order)
        read = self._read_before(epoch)
        return order[read + self.rank :: self.world_size][: self._num_molecules(read)]

    def plan(self, epoch: int) -> EpochPlan:
        """Return the plan of the given epoch."""
        order = np.ascontiguousarray(self.molecules(epoch))
        starts = (np.arange(len(self)) - self._first(epoch)).clip(min=0) * self.batch_size
        batch_ptr = np.append(starts, len(order))
        tile_ptr, tile_starts = plan_tiles(order, batch_ptr, self.num_nodes, self.tile_nodes)
        arrays = order, batch_ptr, pointers(self.num_nodes[order]), pointers(self.num_edges[order]), tile_ptr, tile_starts
        return EpochPlan(*arrays, room=self._num_molecules(0))

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch to be read next, from its start. A partly read epoch that is chosen again goes on, as when resuming."""
        if epoch != self.epoch or self.position >= len(self):
            self.epoch = epoch
            self.position = self._resume = self._first(epoch)

    def begin(self) -> int:
        """Start reading the current epoch, or the next one if all its batches were read, and return the first batch to read."""
        if self.position >= len(self):
            self.set_epoch(self.epoch + 1)
        self.position, self._resume = self._resume, self._first(self.epoch)
        return self.position

    def advance(self) -> None:
        """Count one batch as read."""
        self.position += 1

    def __iter__(self) -> Iterator[list[int]]:
        """Return the rest of the current epoch as lists of indices, as `DataLoader(batch_sampler=...)` takes them."""
        plan = self.plan(self.epoch)
        return (plan.batch(number)[0].tolist() for number in range(self.position, len(plan)))

    def state_dict(self) -> dict[str, int]:
        """Return the epoch, what was read of it, and the options that determine the batches.

        `position` is this rank's next batch, `read_before` the molecules that other ranks had read of the epoch, and `read` the molecules
        that all ranks have read of it up to here.
        """
        total, before = len(self.num_nodes), self._read_before(self.epoch)
        here = (self.position - self._first(self.epoch)) * self.batch_size * self.world_size
        read = total if self.position >= len(self) else before + here
        where = {"epoch": self.epoch, "position": self.position, "read_before": before, "read": read, "world_size": self.world_size}
        return where | {name: value for name, (_, value) in self._identity().items()}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go on where `state_dict` was taken, in a run with the same order of molecules; the number of ranks may be another."""
        for name, (key, value) in self._identity().items():
            if state[name] != value:
                raise UserError(
                    f"The interrupted run had {key}={state[name]}, this one has {value}: its batches would not be the same. "
                    f"Resume with {key}={state[name]}, or start a new run."
                )
        self.epoch, total = state["epoch"], len(self.num_nodes)
        if self.world_size == state["world_size"]:
            self._begun = self.epoch, state.get("read_before", 0)
            self.position = self._resume = state["position"]
        elif (read := state.get("read", state["position"] * self.batch_size * state["world_size"])) >= total:
            self.position = self._resume = len(self)
        else:
            self._begun = self.epoch, min(read, total - self.world_size)  # each rank reads a molecule
            self.position = self._resume = self._first(self.epoch)

    def _identity(self) -> dict[str, tuple[str, int]]:
        return {
            "seed": ("seed", self.seed),
            "batch_size": ("dataset.batch_size", self.batch_size),
            "num_molecules": ("number of molecules", len(self.num_nodes)),
        }
