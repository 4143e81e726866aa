"""Slots: buffers for batches that are allocated once and keep their shapes, and the sizes of slots."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from molgcn.data.batch import OPTIONAL, BatchTensors, GraphBatch
from molgcn.data.molecule_set import MoleculeSet
from molgcn.data.packed_arrays import BatchArray, batch_arrays
from molgcn.data.tiles import max_tiles


class SlotArray(NamedTuple):
    """An array of a slot."""

    name: str  # name of the slot's attribute
    axis: Literal["molecule", "molecule + 1", "atom", "atom + 1", "bond", "tile + 1", "row", "count"]  # what the entries belong to
    dtype: torch.dtype = torch.int32  # type of the entries
    columns: tuple[int, ...] = ()  # shape of one entry


ARRAYS = (
    SlotArray("ptr", "molecule + 1"),
    SlotArray("rowptr", "atom + 1"),
    SlotArray("col", "bond"),
    SlotArray("indices", "molecule", torch.int64),
    SlotArray("tile_ptr", "tile + 1"),
    SlotArray("counts", "count"),
)
"""The arrays that every slot has, beside `x`, `targets` and what its batches hold of :mod:`molgcn.data.packed_arrays`."""

_MOST_PARTS = 1024  # the most views of a slot that are remembered
_ALIGNMENT = 256  # bytes, as PyTorch's allocator aligns tensors


@dataclass(frozen=True)
class Capacity:
    """The size of a slot."""

    graphs: int  # largest number of molecules
    nodes: int  # largest number of atoms
    edges: int  # largest number of directed bonds
    tiles: int  # largest number of tiles
    tile_nodes: int  # number of atoms that a tile has room for
    large_molecules: bool  # whether a molecule may have more atoms than a tile
    leaves_merged: bool = False  # whether equal leaves are one row, see `molgcn.data.merge_leaves.merge_leaves`

    @classmethod
    def of(cls, molecules: MoleculeSet, batch_size: int, tile_nodes: int | None = None, repeats: bool = False) -> Capacity:
        """Return a capacity into which any `batch_size` molecules of the set fit.

        It has room for the atoms of the molecules with the most atoms, and for the bonds of the molecules with the most bonds.

        Args:
            molecules: the set.
            batch_size: number of molecules in a batch. A smaller set needs room for all its molecules only.
            tile_nodes: number of atoms that a tile has room for. Default: that of the set.
            repeats: whether a batch may hold a molecule several times, so that the largest molecule may fill the whole batch.
        """
        sizes = molecules.num_nodes_per_graph
        graphs = min(batch_size, len(molecules))
        nodes, edges = (_largest(one, graphs, repeats) for one in (sizes, np.diff(molecules.edge_ptr)))
        tile_nodes = tile_nodes or molecules.tile_nodes
        large = min(graphs, int((sizes > tile_nodes).sum()))
        large = graphs if repeats and large else large
        return cls(graphs, nodes, edges, max_tiles(graphs, nodes, large, tile_nodes), tile_nodes, large > 0, molecules.leaves_merged)


def _largest(sizes: np.ndarray, count: int, repeats: bool) -> int:
    if repeats:
        return count * int(sizes.max())
    return int(np.partition(sizes, len(sizes) - count)[len(sizes) - count :].sum())


def torch_type(dtype: type | np.dtype) -> torch.dtype:
    """Return PyTorch's name of a NumPy type."""
    return torch.from_numpy(np.empty(0, dtype)).dtype


class Slot(BatchTensors):
    """The arrays of one batch, padded to a fixed capacity.

    A batch of B molecules, N atoms and E bonds in K tiles fills the start of each array. What follows are molecules without atoms, which
    are in no tile: the rest of `ptr` is N, of `rowptr` E, of `targets` NaN (missing), of `indices` -1 and of `tile_ptr` B. The rest of the
    arrays of atoms and bonds is never read through the pointers, and the rest of `descriptors` does not count in a loss. It keeps its
    content: rows of earlier batches, zeros, or valid codes.

    Args:
        arrays: the arrays of the slot; :meth:`of` gives it those of a packed set.
        capacity: size of the slot.
        num_rows: number of rows of an `edge_table` among the arrays.
        device: device of the slot.
        pin_memory: whether a slot on the CPU is page-locked, so that it can be copied to a GPU asynchronously.

    Attributes:
        arrays: all arrays by their names.
        features: the :func:`molgcn.data.packed_arrays.batch_arrays` of the set that the slot was made for.
        buffer: uint8, the memory of all arrays.
        counts: int32 [4], numbers of molecules, atoms, bonds and tiles in use, for kernels.
        targets: float [graphs, L], the labels (:mod:`molgcn.data.label_columns`) in the set's dtype.

    All other arrays are those of :class:`molgcn.data.GraphBatch`, for as many molecules, atoms and bonds as the slot has room for. A set
    that codes its bonds has `edge_code` and no `edge_attr`.
    """

    tile_ptr: Tensor
    counts: Tensor
    edge_attr: Tensor | None = None

    def __init__(
        self,
        arrays: Sequence[SlotArray],
        capacity: Capacity,
        num_rows: int = 0,
        device: str | torch.device = "cpu",
        pin_memory: bool = False,
    ) -> None:
        places = {"molecule": capacity.graphs, "atom": capacity.nodes, "bond": capacity.edges, "tile": capacity.tiles, "count": 4}
        places |= {f"{axis} + 1": count + 1 for axis, count in places.items()} | {"row": num_rows}
        self.arrays = {array.name: array for array in arrays}
        self.features: list[BatchArray] = []
        shapes = [(places[array.axis], *array.columns) for array in arrays]
        sizes = [math.prod(shape) * array.dtype.itemsize for array, shape in zip(arrays, shapes, strict=True)]
        starts = [0, *accumulate(-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes)]
        self.buffer = torch.zeros(starts[-1], dtype=torch.uint8, device=device, pin_memory=pin_memory)
        for array, shape, size, start in zip(arrays, shapes, sizes, starts, strict=False):
            tensor = self.buffer[start : start + size].view(array.dtype).view(shape)
            setattr(self, array.name, tensor.data)  # not a view to autograd, which would take a change of one array for one of all
        self.capacity = capacity
        self.hints: dict[str, Any] = {name: getattr(capacity, name) for name in ("tile_nodes", "large_molecules", "leaves_merged")}
        self._padded: dict[int, GraphBatch] = {}
        self._parts: dict[tuple[str, int], Tensor] = {}

    @classmethod
    def of(cls, molecules: MoleculeSet, capacity: Capacity, device: str | torch.device = "cpu", pin_memory: bool = False) -> Slot:
        """Return a slot for the batches of a set. The set decides which of the arrays that batches hold the slot has."""
        features = batch_arrays(molecules)
        arrays = [SlotArray(array.name, array.axis, torch_type(array.batch_type), array.batch_shape) for array in features]
        arrays.append(SlotArray("targets", "molecule", torch_type(molecules.labels.dtype), molecules.labels.shape[1:]))
        slot = cls([*arrays, *ARRAYS], capacity, device=device, pin_memory=pin_memory)
        slot.features = features
        slot.edge_table = None if molecules.edge_table is None else torch.tensor(molecules.edge_table, device=device)
        return slot

    @classmethod
    def pair(cls, molecules: MoleculeSet, capacity: Capacity, **options: Any) -> tuple[Slot, Slot]:
        """Return two slots for batches of the set, made with the same keyword arguments."""
        return cls.of(molecules, capacity, **options), cls.of(molecules, capacity, **options)

    def part(self, name: str, count: int) -> Tensor | None:
        """Return the first `count` rows of an array, or None if the slot does not have it.

        Those of integers are remembered: a view takes longer to make than to find again. A view of floats may come to want a gradient.
        """
        part = self._parts.get((name, count))
        if part is not None:
            return part
        whole: Tensor | None = getattr(self, name)
        if whole is None or whole.is_floating_point():
            return None if whole is None else whole[:count]
        if len(self._parts) >= _MOST_PARTS:
            self._parts.clear()
        with torch.inference_mode(False):
            part = self._parts[name, count] = whole[:count]
        return part

    @property
    def target_words(self) -> Tensor:
        """The targets as 32-bit words, see :attr:`molgcn.data.PackedMolecules.target_words`."""
        return self.targets.view(torch.int32)

    def tensors(self) -> Iterator[Tensor]:
        return (getattr(self, name) for name in self.arrays)

    @property
    def nbytes(self) -> int:
        return sum(tensor.nbytes for tensor in self.tensors())

    @property
    def padded(self) -> GraphBatch:
        """The slot as one batch of full, constant shape, which captured steps read."""
        return self.padded_to(self.capacity.graphs)

    def padded_to(self, num_graphs: int) -> GraphBatch:
        """Return the slot as one batch of constant shape for batches of this many molecules. It is the same object at every call."""
        if num_graphs not in self._padded:
            self._padded[num_graphs] = PaddedBatch(self, num_graphs)
        return self._padded[num_graphs]


class PaddedBatch(GraphBatch):
    """A slot as one batch of constant shape, whose values change with the slot. Nothing in it waits for the device.

    Molecules without atoms are at its end. Unused bonds connect a padding atom, number N of a slot with room for N atoms, with itself. The
    padding atom and the unused atoms belong to a padding molecule, number B of a slot with room for B molecules. To use `edge_index` or
    `batch`, append a row of any finite values to the atoms' rows, pool B + 1 molecules and drop the last. Layers do not need to handle
    padding, since nothing of it reaches a real atom.
    """

    def __init__(self, slot: Slot, num_graphs: int) -> None:
        self._edge_rows = slot.edge_attr  # not the slot itself, which would be a reference cycle
        options = slot.hints | {name: getattr(slot, name) for name in ("tile_ptr", "edge_code", "edge_table", *OPTIONAL)}
        options["descriptors"] = None if slot.descriptors is None else slot.descriptors[:num_graphs]
        targets, indices = slot.targets[:num_graphs], slot.indices[:num_graphs]
        super().__init__(slot.x, slot.ptr[: num_graphs + 1], slot.rowptr, slot.col, targets, indices, **options)
        self.counts = slot.counts

    def _edge_attr(self) -> Tensor | None:
        return self._edge_rows if self.edge_code is None else super()._edge_attr()

    # these are not cached, since the slot is refilled
    edge_attr = property(_edge_attr)
    edge_index = property(GraphBatch._edge_index)
    batch = property(GraphBatch._batch)
