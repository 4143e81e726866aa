"""Slots: batch buffers of fixed stride, allocated once, whose shapes never change."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from molgcn.data.batch import GraphBatch
from molgcn.data.packed import PackedMolecules
from molgcn.data.sampler import Place
from molgcn.data.tiles import max_tiles
from molgcn.errors import UserError


@dataclass(frozen=True)
class Capacity:
    """Places of a slot: molecules, atoms, bonds and tiles, and nodes of a tile; whether a molecule may have more than those; whether atoms
    alike are one row."""

    graphs: int
    nodes: int
    edges: int
    tiles: int
    tile_nodes: int
    large_molecules: bool
    leaves_merged: bool = False

    @classmethod
    def of(
        cls,
        molecules: PackedMolecules,
        batch_size: int,
        nodes: int | None = None,
        edges: int | None = None,
        tile_nodes: int | None = None,
    ) -> Capacity:
        """What any `batch_size` molecules of the set, or all if it has fewer, fit into: as many atoms and bonds as its largest have, each
        counted by itself.

        Args:
            molecules: the set.
            batch_size: molecules a batch.
            nodes: atoms, if given; for slots that several sets share.
            edges: bonds, if given.
            tile_nodes: node places of a tile; default the set's.

        Raises:
            UserError: when `nodes` or `edges` is less than the set needs.
        """
        sizes = molecules.num_nodes_per_graph
        graphs = min(batch_size, len(molecules))
        need = {"atoms": _largest(sizes, graphs), "bonds": _largest(np.diff(molecules.edge_ptr), graphs)}
        given = {"atoms": nodes, "bonds": edges}
        for what, least in need.items():
            if (places := given[what]) is not None and places < least:
                raise UserError(
                    f"A slot of {places:,} {what} is too small: the {graphs:,} largest molecules of the set have {least:,}. "
                    f"Give at least as many, or lower dataset.batch_size."
                )
        nodes, edges = nodes or need["atoms"], need["bonds"] if edges is None else edges
        tile_nodes = tile_nodes or molecules.tile_nodes
        large = min(graphs, int((sizes > tile_nodes).sum()))
        return cls(graphs, nodes, edges, max_tiles(graphs, nodes, large, tile_nodes), tile_nodes, large > 0, molecules.leaves_merged)


def _largest(sizes: np.ndarray, count: int) -> int:
    return int(np.partition(sizes, len(sizes) - count)[len(sizes) - count :].sum())


class Slot:
    """The arrays of one batch, padded to a fixed capacity.

    After a fill of B molecules, N atoms and E bonds in K tiles the first places hold the batch. What follows reads as molecules without
    atoms: the rest of `ptr` is N, that of `rowptr` E, `targets` NaN (missing) and `indices` -1. They are in
    no tile: the rest of `tile_ptr` is B. The rest of `x` and `col` is never read through the pointers and keeps whatever it held.

    Args:
        capacity: its places.
        num_features: F.
        num_targets: T.
        target_type: of `targets`.
        device: where it lies.
        pin_memory: on the CPU: page-locked, to be copied to a GPU asynchronously.

    Attributes:
        x: float32 [nodes, F].
        ptr: int32 [graphs + 1].
        rowptr: int32 [nodes + 1].
        col: int32 [edges].
        targets: float [graphs, T], in the set's dtype.
        indices: int64 [graphs].
        tile_ptr: int32 [tiles + 1].
        counts: int32 [4], molecules, atoms, bonds and tiles in use, for kernels to read.
    """

    names = ("x", "ptr", "rowptr", "col", "targets", "indices", "tile_ptr", "counts")

    def __init__(
        self,
        capacity: Capacity,
        num_features: int,
        num_targets: int,
        target_type: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
        pin_memory: bool = False,
    ) -> None:
        def empty(*shape: int, dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.zeros(shape, dtype=dtype, device=device, pin_memory=pin_memory)

        self.capacity = capacity
        self.hints: dict[str, Any] = {name: getattr(capacity, name) for name in ("tile_nodes", "large_molecules", "leaves_merged")}
        self.x = empty(capacity.nodes, num_features, dtype=torch.float32)
        self.ptr = empty(capacity.graphs + 1)
        self.rowptr = empty(capacity.nodes + 1)
        self.col = empty(capacity.edges)
        self.targets = empty(capacity.graphs, num_targets, dtype=target_type)
        self.indices = empty(capacity.graphs, dtype=torch.int64)
        self.tile_ptr = empty(capacity.tiles + 1)
        self.counts = empty(4)

    @classmethod
    def pair(cls, molecules: PackedMolecules, capacity: Capacity, **options: Any) -> tuple[Slot, Slot]:
        """Two slots for batches of the set; `options` as for the class."""
        target_type = torch.float64 if molecules.targets.dtype == np.float64 else torch.float32
        arguments = (capacity, molecules.num_features, molecules.targets.shape[1], target_type)
        return cls(*arguments, **options), cls(*arguments, **options)

    @property
    def target_words(self) -> Tensor:
        """The targets as 32-bit words, see :attr:`molgcn.data.PackedMolecules.target_words`."""
        return self.targets.view(torch.int32)

    def tensors(self) -> Iterator[Tensor]:
        """All arrays."""
        return (getattr(self, name) for name in self.names)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(tensor.nbytes for tensor in self.tensors())

    @cached_property
    def padded(self) -> GraphBatch:
        """The slot as one batch of full, never changing shape: what a captured step reads, molecules without atoms at its end."""
        tensors = (self.x, self.ptr, self.rowptr, self.col, self.targets, self.indices)
        batch = GraphBatch(*tensors, tile_ptr=self.tile_ptr, **self.hints)
        batch.counts = self.counts
        return batch


class GraphFeed(Protocol):
    """A feed whose slots a CUDA graph of the consumer may fill."""

    def enqueue_next(self, slot: Slot) -> None:
        """See :meth:`SlotBatch.enqueue_next`; `slot` is the batch's own."""
        ...

    def next_is_enqueued(self) -> None:
        """See :meth:`SlotBatch.next_is_enqueued`."""
        ...


class SlotBatch(GraphBatch):
    """The batch that a slot holds: real molecules only, as views of the slot.

    Valid until the loader is asked for the next batch; after that its fields raise an error rather than show another batch.
    What `indices` and `targets` gave before is safe to keep.

    Args:
        slot: the slot.
        place: of the batch in the epoch's plan.
        feed: that lets graphs fill its slots.
    """

    def __init__(self, slot: Slot, place: Place, feed: GraphFeed | None = None) -> None:
        self._slot: Slot | None = slot
        self._place = place
        self._feed = feed
        vars(self).update(slot.hints)

    def expire(self) -> None:
        """Ends the views: the slot is about to be refilled."""
        if self._slot is not None:
            self._slot = None
            for name in ("x", "ptr", "rowptr", "col", "tile_ptr", "edge_index", "batch"):
                vars(self).pop(name, None)

    def to(self, device: str | torch.device, non_blocking: bool = False) -> GraphBatch:
        """The batch on another device; itself when its slot is there."""
        device = torch.device(device)
        mine = self.slot.x.device
        return self if mine == device or (device.index is None and mine.type == device.type) else super().to(device, non_blocking)

    @property
    def slot(self) -> Slot:
        """The slot, while it holds this batch.

        Raises:
            UserError: when the loader has been asked for another batch since.
        """
        if self._slot is None:
            raise UserError(
                "This batch is gone: batches of the packed loader are views of a buffer that is refilled when the next batch is asked "
                "for. To keep one, use batch.clone() before; list(loader) becomes [batch.clone() for batch in loader]."
            )
        return self._slot

    @property
    def padded(self) -> GraphBatch:  # type: ignore[override]
        """See :attr:`Slot.padded`."""
        return self.slot.padded

    def enqueue_next(self) -> None:
        """Fills the other slot with the batch after this one, on the current stream: for a graph to capture.

        Each replay finds on the device which batch that is, and must be told of by :meth:`next_is_enqueued`; the loader then leaves the
        filling to it. Where the loader does not have this it goes on filling by itself.
        """
        if self._feed is not None:
            self._feed.enqueue_next(self.slot)

    def next_is_enqueued(self) -> None:
        """A graph with :meth:`enqueue_next` in it was replayed for this batch, on the stream that was current when it was asked for."""
        if self._feed is not None:
            self._feed.next_is_enqueued()

    @property
    def num_graphs(self) -> int:
        """B."""
        return self._place.num_graphs

    @property
    def num_nodes(self) -> int:
        """N."""
        return self._place.num_nodes

    @property
    def num_edges(self) -> int:
        """E."""
        return self._place.num_edges

    @cached_property
    def x(self) -> Tensor:  # type: ignore[override]
        """float32 [N, F]."""
        return self.slot.x[: self._place.num_nodes]

    @cached_property
    def ptr(self) -> Tensor:  # type: ignore[override]
        """int32 [B + 1]."""
        return self.slot.ptr[: self._place.num_graphs + 1]

    @cached_property
    def rowptr(self) -> Tensor:  # type: ignore[override]
        """int32 [N + 1]."""
        return self.slot.rowptr[: self._place.num_nodes + 1]

    @cached_property
    def col(self) -> Tensor:  # type: ignore[override]
        """int32 [E]."""
        return self.slot.col[: self._place.num_edges]

    @cached_property
    def targets(self) -> Tensor:  # type: ignore[override]
        """float [B, T], a copy: metrics keep targets until the end of an epoch."""
        return self.slot.targets[: self._place.num_graphs].clone()

    @cached_property
    def indices(self) -> Tensor:  # type: ignore[override]
        """int64 [B], a copy likewise."""
        return self.slot.indices[: self._place.num_graphs].clone()

    @cached_property
    def tile_ptr(self) -> Tensor:
        """int32 [tiles + 1]."""
        return self.slot.tile_ptr[: self._place.num_tiles + 1]

    def _planned_tiles(self) -> Tensor:
        return self.tile_ptr
