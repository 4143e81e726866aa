"""Slots: batch buffers of fixed stride, allocated once, whose shapes never change."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from molgcn.data.batch import GraphBatch
from molgcn.data.batch_arrays import batch_arrays
from molgcn.data.capacity import Capacity
from molgcn.data.packed import PackedMolecules
from molgcn.data.sampler import BatchSpan
from molgcn.errors import UserError


class SlotArray(NamedTuple):
    """An array of a slot beside those of :mod:`molgcn.data.batch_arrays`: its name, what its entries belong to, and their type."""

    name: str
    axis: Literal["molecule", "molecule + 1", "atom", "atom + 1", "bond", "tile + 1", "count"]
    dtype: torch.dtype = torch.int32
    columns: tuple[int, ...] = ()


ARRAYS = (
    SlotArray("ptr", "molecule + 1"),
    SlotArray("rowptr", "atom + 1"),
    SlotArray("col", "bond"),
    SlotArray("indices", "molecule", torch.int64),
    SlotArray("tile_ptr", "tile + 1"),
    SlotArray("counts", "count"),
)


class Slot:
    """The arrays of one batch, padded to a fixed capacity.

    After a fill of B molecules, N atoms and E bonds in K tiles the first places hold the batch. What follows reads as molecules without
    atoms: the rest of `ptr` is N, that of `rowptr` E, `targets` NaN (missing) and `indices` -1. They are in
    no tile: the rest of `tile_ptr` is B. The rest of the arrays of atoms and bonds is never read through the pointers, and that of
    `descriptors` has no part in a loss; they keep what they held: rows of earlier batches or zeros, codes that the table has.

    Args:
        molecules: the set that its batches are of; what it has of :mod:`molgcn.data.batch_arrays` the slot has too.
        capacity: its places.
        device: where it lies.
        pin_memory: on the CPU: page-locked, to be copied to a GPU asynchronously.

    Attributes:
        features: the set's :func:`molgcn.data.batch_arrays.batch_arrays`.
        names: of all arrays.
        x: float32 [nodes, F].
        ptr: int32 [graphs + 1].
        rowptr: int32 [nodes + 1].
        col: int32 [edges].
        targets: float [graphs, L], the labels (:mod:`molgcn.data.label_columns`), in the set's dtype.
        indices: int64 [graphs].
        tile_ptr: int32 [tiles + 1].
        counts: int32 [4], molecules, atoms, bonds and tiles in use, for kernels to read.
        edge_code: int32 [edges], not the bytes that the set has: PyTorch takes rows by int32 without converting it. None for a set whose
            bonds have no codes; then
        edge_attr: float32 [edges, D], or None.
        edge_table: float32 [K, D], the set's, or None.
        rwse: float32 [nodes, k], or None; likewise
        bond_rw: float32 [edges, k], or None; and
        descriptors: float32 [graphs, K], or None; and
        component: int32 [nodes], or None.
    """

    x: Tensor
    ptr: Tensor
    rowptr: Tensor
    col: Tensor
    targets: Tensor
    indices: Tensor
    tile_ptr: Tensor
    counts: Tensor
    edge_code: Tensor | None = None
    edge_attr: Tensor | None = None
    edge_table: Tensor | None = None
    rwse: Tensor | None = None
    bond_rw: Tensor | None = None
    descriptors: Tensor | None = None
    component: Tensor | None = None

    def __init__(
        self, molecules: PackedMolecules, capacity: Capacity, device: str | torch.device = "cpu", pin_memory: bool = False
    ) -> None:
        places = {"molecule": capacity.graphs, "atom": capacity.nodes, "bond": capacity.edges, "tile": capacity.tiles, "count": 4}
        places |= {f"{axis} + 1": count + 1 for axis, count in places.items()}
        self.features = batch_arrays(molecules)
        arrays = [SlotArray(array.name, array.axis, _TYPES[array.batch_type], array.batch_shape) for array in self.features]
        arrays.append(SlotArray("targets", "molecule", _TYPES[molecules.labels.dtype.type], molecules.labels.shape[1:]))
        arrays += ARRAYS
        for array in arrays:
            shape = (places[array.axis], *array.columns)
            setattr(self, array.name, torch.zeros(shape, dtype=array.dtype, device=device, pin_memory=pin_memory))
        self.names = tuple(array.name for array in arrays)
        self.edge_table = None if molecules.edge_table is None else torch.tensor(molecules.edge_table, device=device)
        self.capacity = capacity
        self.hints: dict[str, Any] = {name: getattr(capacity, name) for name in ("tile_nodes", "large_molecules", "leaves_merged")}

    @classmethod
    def pair(cls, molecules: PackedMolecules, capacity: Capacity, **options: Any) -> tuple[Slot, Slot]:
        """Two slots for batches of the set; `options` as for the class."""
        return cls(molecules, capacity, **options), cls(molecules, capacity, **options)

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
        """The slot as one batch of full, never changing shape: what a captured step reads."""
        return PaddedBatch(self)


_TYPES: dict[type, torch.dtype] = {np.float32: torch.float32, np.float64: torch.float64, np.int32: torch.int32}


class PaddedBatch(GraphBatch):
    """A slot as one batch of full, never changing shape, whose values follow the slot: molecules without atoms stand at its end.

    Its atoms and bonds beyond those in use are as :mod:`molgcn.data.padding` says.

    Args:
        slot: the slot.
    """

    def __init__(self, slot: Slot) -> None:
        self._edge_rows = slot.edge_attr  # and not the slot, which keeps this batch
        names = ("tile_ptr", "edge_code", "edge_table", "rwse", "bond_rw", "descriptors", "component")
        options = slot.hints | {name: getattr(slot, name) for name in names}
        super().__init__(slot.x, slot.ptr, slot.rowptr, slot.col, slot.targets, slot.indices, **options)
        self.counts = slot.counts

    @property
    def edge_attr(self) -> Tensor | None:
        """See :attr:`GraphBatch.edge_attr`; never kept, since the slot is filled anew."""
        return self._edge_rows if self.edge_code is None else self._edge_attr_of_codes()

    @property
    def edge_index(self) -> Tensor:
        """See :attr:`GraphBatch.edge_index`; never kept likewise."""
        return self._edge_index()

    @property
    def batch(self) -> Tensor:
        """See :attr:`GraphBatch.batch`; never kept likewise."""
        return self._batch()


class GraphFeed(Protocol):
    """A feed whose slots a CUDA graph of the consumer may fill."""

    def enqueue_next(self, slot: Slot) -> None:
        """See :meth:`SlotBatch.enqueue_next`; `slot` is the batch's own."""
        ...

    def next_is_enqueued(self) -> None:
        """See :meth:`SlotBatch.next_is_enqueued`."""
        ...


def _view(name: str, size: str, more: int = 0) -> Any:
    """Return an attribute of :class:`SlotBatch`: the batch's part of its slot's array, None where the slot has none."""

    def part(batch: SlotBatch) -> Tensor | None:
        whole = getattr(batch.slot, name)
        return None if whole is None else whole[: getattr(batch.span, size) + more]

    return cached_property(part)


class SlotBatch(GraphBatch):
    """The batch that a slot holds: real molecules only, as views of the slot.

    Valid until the loader is asked for the next batch; after that its fields raise an error rather than show another batch.
    What `indices` and `targets` gave before is safe to keep.

    Args:
        slot: the slot.
        span: where the batch lies in the epoch's plan.
        feed: that lets graphs fill its slots.
    """

    def __init__(self, slot: Slot, span: BatchSpan, feed: GraphFeed | None = None) -> None:
        self._slot: Slot | None = slot
        self.span = span
        self._feed = feed
        vars(self).update(slot.hints)
        if slot.edge_attr is not None:
            self.edge_attr = slot.edge_attr[: span.num_edges]

    def expire(self) -> None:
        """Ends the views: the slot is about to be refilled."""
        if self._slot is not None:
            self._slot = None
            for name in [name for name, value in vars(self).items() if isinstance(value, Tensor) and name not in ("targets", "indices")]:
                del vars(self)[name]

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
        return self.span.num_graphs

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.span.num_nodes

    @property
    def num_edges(self) -> int:
        """E."""
        return self.span.num_edges

    x = _view("x", "num_nodes")
    ptr = _view("ptr", "num_graphs", 1)
    rowptr = _view("rowptr", "num_nodes", 1)
    col = _view("col", "num_edges")
    tile_ptr = _view("tile_ptr", "num_tiles", 1)
    edge_code = _view("edge_code", "num_edges")
    rwse = _view("rwse", "num_nodes")
    bond_rw = _view("bond_rw", "num_edges")
    descriptors = _view("descriptors", "num_graphs")
    component = _view("component", "num_nodes")

    @property
    def edge_table(self) -> Tensor | None:  # type: ignore[override]
        """float32 [K, D], the set's."""
        return self.slot.edge_table

    @cached_property
    def targets(self) -> Tensor:  # type: ignore[override]
        """A copy of the targets, float [B, T], since metrics keep them until the end of an epoch."""
        return self.slot.targets[: self.span.num_graphs].clone()

    @cached_property
    def indices(self) -> Tensor:  # type: ignore[override]
        """int64 [B], a copy likewise."""
        return self.slot.indices[: self.span.num_graphs].clone()

    def _planned_tiles(self) -> Tensor:
        return self.tile_ptr
