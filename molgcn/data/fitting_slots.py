"""Slots for batches of any size from any source, such as PyG's loader."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from molgcn.data.batch import GraphBatch
from molgcn.data.encodings import batch_encodings
from molgcn.data.packed_arrays import NAMES
from molgcn.data.sampler import BatchSpan
from molgcn.data.slot_batch import SlotBatch
from molgcn.data.slots import ARRAYS, Capacity, Slot, SlotArray
from molgcn.data.tiles import max_tiles, next_fit

log = logging.getLogger(__name__)

_ROOM = 1.25  # times the batch that a slot is made for: batches of 32 molecules differ by a tenth
_AXES = {name: axis for axis, names in NAMES.items() for name in names}


class Sizes(NamedTuple):
    """The size of a batch."""

    graphs: int = 0  # number of molecules
    nodes: int = 0  # number of atoms
    edges: int = 0  # number of directed bonds

    def fits(self, other: Sizes) -> bool:
        """Return whether a batch of this size fits into a slot of another."""
        return all(mine <= theirs for mine, theirs in zip(self, other, strict=True))

    def largest(self, other: Sizes) -> Sizes:
        """Return the size into which batches of both sizes fit."""
        return Sizes(*map(max, self, other))

    @classmethod
    def of(cls, batch: Any) -> Sizes:
        """Return the size of a :class:`molgcn.data.GraphBatch`, or of PyG's `Batch` or `Data`."""
        return cls(getattr(batch, "num_graphs", 1), batch.num_nodes, batch.num_edges)


class Form(NamedTuple):
    """What batches must have in common to use the same slot."""

    arrays: tuple[SlotArray, ...]  # the arrays of the slot
    num_rows: int  # number of rows of `edge_table`
    tile_nodes: int  # number of atoms that a tile has room for
    large_molecules: bool  # whether a molecule may have more atoms than a tile
    leaves_merged: bool  # whether equal leaves are one row


@dataclass
class _Held:
    """A slot, and two page-locked slots of the same form through which batches on the CPU go to it by turns."""

    slot: Slot
    staging: list[Slot]
    copied: list[torch.cuda.Event]
    turn: int = 0


class FittingSlots:
    """Puts batches into slots of fixed size on a device, which it makes and enlarges as they are needed.

    A batch is copied unless it already lies in a slot of a loader there, unchanged. There is one slot for each :class:`Form`, so a batch
    is valid until the next is put in.

    Args:
        device: the device of the slots.
        inputs: the names of what the network reads beside `x` and the bonds, see :attr:`molgcn.nn.MoleculeNet.optional_inputs`.
        walks: number of steps k of the random walks whose encodings `rwse` and `bond_rw` the network reads; 0 for none. They are computed
            where a batch does not hold them.
        dtype: the floating-point type of the network.
        expected: the size into which the batches are known to fit. Larger ones fit too, into a slot that is made for them.
    """

    def __init__(
        self,
        device: torch.device,
        inputs: Iterable[str] = (),
        walks: tuple[int, int] = (0, 0),
        dtype: torch.dtype = torch.float32,
        expected: Sizes | None = None,
    ) -> None:
        self.device = device
        self.inputs = tuple(inputs)
        self.walks = walks
        self.dtype = dtype
        self.expected = expected or Sizes()
        self.made = 0  # number of slots made so far
        self._slots: dict[Form, _Held] = {}
        self._readable: WeakKeyDictionary[Slot, bool] = WeakKeyDictionary()  # the loaders' slots
        self._tile_nodes, self._large_molecules = 0, False
        self._grown = False

    def __call__(self, batch: Any) -> SlotBatch:
        """Return a :class:`molgcn.data.GraphBatch` or PyG's `Batch` as the batch of a slot."""
        if self.holds(batch):
            return batch
        given = batch if isinstance(batch, GraphBatch) else GraphBatch.from_pyg(batch)
        if given.x.device.type != "cpu":
            given = given.to(self.device)
        tile_nodes, large, tile_ptr = self._tiles(given)
        values = self._values(given) | {"tile_ptr": tile_ptr}
        arrays = [SlotArray(name, _AXES[name], values[name].dtype, tuple(values[name].shape[1:])) for name in values if name in _AXES]
        arrays.append(SlotArray("targets", "molecule", given.targets.dtype, tuple(given.targets.shape[1:])))
        if "edge_table" in values:
            arrays.append(SlotArray("edge_table", "row", self.dtype, tuple(values["edge_table"].shape[1:])))
        num_rows = len(values["edge_table"]) if "edge_table" in values else 0
        form = Form((*arrays, *ARRAYS), num_rows, tile_nodes, large, given.leaves_merged)
        size, num_tiles = Sizes.of(given), len(tile_ptr) - 1
        held = self._slot(form, size, num_tiles)
        if given.x.device == held.slot.x.device:
            _fill(held.slot, values, size, num_tiles)
        else:
            _upload(held, values, size, num_tiles)
        return SlotBatch(held.slot, BatchSpan(0, 0, 0, 0, *size, num_tiles))

    def holds(self, batch: Any) -> bool:
        """Return whether a batch lies, unchanged, in a loader's slot on the device that holds all that the network reads."""
        if not isinstance(batch, SlotBatch) or batch.is_changed:
            return False
        slot = batch.slot
        if slot not in self._readable:
            names = ("edge_code" if name == "edge_attr" and slot.edge_code is not None else name for name in self.inputs)
            here = slot.x.device == self.device and slot.x.dtype == self.dtype
            self._readable[slot] = here and all(getattr(slot, name) is not None for name in names)
        return self._readable[slot]

    def _values(self, batch: GraphBatch) -> dict[str, Tensor]:
        """Return the arrays of a batch that are copied, in the types of a slot's. What the batch lacks is left out."""
        values: dict[str, Tensor | None] = {name: getattr(batch, name) for name in ("x", "ptr", "rowptr", "col", "targets")}
        optional = [name for name in self.inputs if name not in ("rwse", "bond_rw")]
        if "edge_attr" in optional and batch.edge_code is not None:
            optional += ["edge_code", "edge_table"]
            optional.remove("edge_attr")
        values |= {name: getattr(batch, name) for name in optional}
        values |= dict(zip(("rwse", "bond_rw"), batch_encodings(batch, *self.walks), strict=True))
        given = {name: tensor.detach() for name, tensor in values.items() if tensor is not None}
        types = {name: self.dtype if tensor.is_floating_point() else torch.int32 for name, tensor in given.items()}
        types["targets"] = batch.targets.dtype
        return {name: tensor.to(types[name]) for name, tensor in given.items()}

    def _tiles(self, batch: GraphBatch) -> tuple[int, bool, Tensor]:
        """Return a batch's size of tiles, whether molecules may exceed it, and its tiles.

        Batches that come without tiles share the largest size so far, and with it a slot. To plan their tiles, the host reads the sizes of
        their molecules, for which it waits if they are on a GPU.
        """
        planned = batch.planned_tiles()
        if planned is not None:
            return batch.tile_nodes, batch.large_molecules, planned
        self._tile_nodes = max(self._tile_nodes, batch.tile_nodes)
        self._large_molecules |= batch.large_molecules
        tile_ptr = next_fit(batch.ptr.cpu().numpy(), self._tile_nodes)
        return self._tile_nodes, self._large_molecules, torch.from_numpy(tile_ptr).to(batch.ptr.device)

    def _slot(self, form: Form, size: Sizes, num_tiles: int) -> _Held:
        held = self._slots.get(form)
        room = Sizes() if held is None else Sizes(*(getattr(held.slot.capacity, name) for name in Sizes._fields))
        if held is not None and size.fits(room) and num_tiles <= held.slot.capacity.tiles:
            return held
        if held is not None and not self._grown:
            self._grown = True
            log.warning(
                "A batch of %d molecules, %d atoms and %d bonds is larger than any before: its slot is made anew with more room, also for "
                "later batches, and steps are captured anew.",
                *size,
            )
        if not size.fits(self.expected):
            graphs, nodes, edges = (math.ceil(_ROOM * count) for count in size)
            size = Sizes(size.graphs if held is None else graphs, nodes, edges)
        graphs, nodes, edges = size.largest(room).largest(self.expected)
        tiles = max_tiles(graphs, nodes, graphs if form.large_molecules else 0, form.tile_nodes)
        capacity = Capacity(graphs, nodes, edges, max(tiles, num_tiles), *form[2:])
        self.made += 1
        self._slots[form] = _Held(Slot(form.arrays, capacity, form.num_rows, self.device), [], [])
        return self._slots[form]


def _upload(held: _Held, values: Mapping[str, Tensor], size: Sizes, num_tiles: int) -> None:
    """Copy a batch on the CPU to a slot on a GPU in one piece, without waiting for the GPU."""
    slot = held.slot
    if not held.staging:
        num_rows = 0 if slot.edge_table is None else len(slot.edge_table)
        held.staging = [Slot(list(slot.arrays.values()), slot.capacity, num_rows, pin_memory=True) for _ in range(2)]
        held.copied = [torch.cuda.Event(), torch.cuda.Event()]
    held.turn = 1 - held.turn
    held.copied[held.turn].synchronize()  # the batch before the last has left
    _fill(held.staging[held.turn], values, size, num_tiles)
    slot.buffer.copy_(held.staging[held.turn].buffer, non_blocking=True)
    held.copied[held.turn].record(torch.cuda.current_stream(slot.buffer.device))


def _fill(slot: Slot, values: Mapping[str, Tensor], size: Sizes, num_tiles: int) -> None:
    """Copy the arrays of a batch into a slot on their device, and fill up what follows them; see :class:`molgcn.data.slots.Slot`."""
    graphs, nodes, edges = size
    ends = [(slot.ptr, graphs + 1, nodes), (slot.rowptr, nodes + 1, edges), (slot.tile_ptr, num_tiles + 1, graphs)]
    places: Iterable[tuple[Tensor, int]] = [(array[used:], value) for array, used, value in ends]
    places = [*places, *zip(slot.counts.unbind(), (*size, num_tiles), strict=True)]
    if slot.x.is_cuda:  # in as few launches as there can be
        for dtype in {tensor.dtype for tensor in values.values()}:
            names = [name for name, tensor in values.items() if tensor.dtype == dtype]
            torch._foreach_copy_([getattr(slot, name)[: len(values[name])] for name in names], [values[name] for name in names])
        wanted = [(place, value) for place, value in places if place.numel()]
        torch._foreach_zero_([place for place, _ in wanted])
        torch._foreach_add_([place for place, _ in wanted], [value for _, value in wanted])
    else:
        for name, tensor in values.items():
            getattr(slot, name).numpy()[: len(tensor)] = tensor.numpy()  # PyTorch takes longer for so few numbers
        for place, value in places:
            place.numpy()[...] = value
    if graphs < len(slot.targets):
        slot.targets[graphs:].fill_(np.nan if slot.targets.is_floating_point() else -1)
