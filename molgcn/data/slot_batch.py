"""The batch that a slot holds, without its padding."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from molgcn.data.batch import GraphBatch
from molgcn.data.sampler import BatchSpan
from molgcn.data.slots import Slot
from molgcn.errors import UserError

if TYPE_CHECKING:
    from molgcn.data.feed import Feed


def _view(name: str, size: str, more: int = 0) -> Any:
    """Return a property of :class:`SlotBatch`: the batch's part of its slot's array, or None where the slot has no such array."""

    def part(batch: SlotBatch) -> Tensor | None:
        return batch.slot.part(name, getattr(batch.span, size) + more)

    return cached_property(part)


class SlotBatch(GraphBatch):
    """The batch that a slot holds: views of the slot without its padding.

    It is valid until the loader is asked for the next batch. After that its fields raise an error rather than show another batch. Tensors
    that `indices` and `targets` returned before may be kept.

    Args:
        slot: the slot.
        span: position and size of the batch in the epoch's plan.
        feed: the feed of the slot, or None for a slot that no feed fills.
    """

    span: BatchSpan
    _slot: Slot | None
    _feed: Feed | None
    _replaced: bool

    def __init__(self, slot: Slot, span: BatchSpan, feed: Feed | None = None) -> None:
        vars(self).update(slot.hints, span=span, _slot=slot, _feed=feed, _replaced=False)
        if slot.edge_attr is not None:
            vars(self)["edge_attr"] = slot.part("edge_attr", span.num_edges)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set a field, and note that the slot does not hold what the batch has; fields that are found on first use do not come here."""
        vars(self)[name] = value
        vars(self)["_replaced"] |= not name.startswith("_")

    @property
    def is_changed(self) -> bool:
        """Whether fields were replaced, the copy of the targets was changed, or features want a gradient: the slot is not this batch."""
        fields = vars(self)
        x: Tensor | None = fields.get("x")
        targets: Tensor | None = fields.get("targets")
        shifted = targets is not None and not targets.is_inference() and targets._version > 0
        return self._replaced or shifted or (x is not None and x.requires_grad)

    def expire(self) -> None:
        """Drop the views, since the slot is about to be refilled."""
        if self._slot is not None:
            self._slot = None
            for name in [name for name, value in vars(self).items() if isinstance(value, Tensor) and name not in ("targets", "indices")]:
                del vars(self)[name]

    def to(self, device: str | torch.device, non_blocking: bool = False) -> GraphBatch:
        """Return the batch on a device, which is the batch itself if its slot is there."""
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
                "for. To keep one, call batch.clone() first; list(loader) becomes [batch.clone() for batch in loader]."
            )
        return self._slot

    @property
    def padded(self) -> GraphBatch | None:  # type: ignore[override]
        """The slot as one batch of full, constant shape, see :attr:`Slot.padded`; None where the batch :attr:`is_changed`."""
        return None if self.is_changed else self.slot.padded

    def enqueue_next(self) -> None:
        """Fill the other slot with the batch after this one, on the current stream, so that a CUDA graph can capture it.

        Each replay reads the number of the batch on the device. After each replay :meth:`next_is_enqueued` must be called, with which the
        loader leaves the filling to the graph. If the loader does not support this, nothing is enqueued and the loader fills the slots.
        """
        if self._feed is not None:
            self._feed.enqueue_next(self.slot)

    def next_is_enqueued(self) -> None:
        """Note that a CUDA graph that contains :meth:`enqueue_next` was replayed for this batch.

        The replay must be on the stream that was current when the batch was asked for.
        """
        if self._feed is not None:
            self._feed.next_is_enqueued()

    @property
    def num_graphs(self) -> int:
        return self.span.num_graphs

    @property
    def num_nodes(self) -> int:
        return self.span.num_nodes

    @property
    def num_edges(self) -> int:
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
    atom_targets = _view("atom_targets", "num_nodes")
    bond_targets = _view("bond_targets", "num_edges")

    @property
    def edge_table(self) -> Tensor | None:  # type: ignore[override]
        """The set's distinct rows of bond features, float32 [K, D], or None."""
        return self.slot.edge_table

    @cached_property
    def targets(self) -> Tensor:  # type: ignore[override]
        """Copy of the targets, float [B, T]. Metrics keep it until the end of an epoch."""
        return self._copy("targets")

    @cached_property
    def indices(self) -> Tensor:  # type: ignore[override]
        """Copy of the molecules' positions in the set, int64 [B]. Metrics keep it until the end of an epoch."""
        return self._copy("indices")

    def _copy(self, name: str) -> Tensor:
        slot, copied = self.slot, None if self._feed is None else self._feed.copy(name)
        return getattr(slot, name)[: self.span.num_graphs].clone() if copied is None else copied

    def planned_tiles(self) -> Tensor:
        """Return `tile_ptr`, with which every batch of a feed is made."""
        return self.tile_ptr
