"""Slots: buffers for batches that are allocated once and keep their shapes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from molgcn.data.batch import GraphBatch
from molgcn.data.batch_arrays import BatchArray, batch_arrays
from molgcn.data.capacity import Capacity
from molgcn.data.molecule_set import MoleculeSet


class SlotArray(NamedTuple):
    """An array of a slot.

    Attributes:
        name: name of the slot's attribute.
        axis: what the entries belong to.
        dtype: type of the entries.
        columns: shape of one entry.
    """

    name: str
    axis: Literal["molecule", "molecule + 1", "atom", "atom + 1", "bond", "tile + 1", "row", "count"]
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
"""The arrays that every slot has, beside `x`, `targets` and what its batches hold of :mod:`molgcn.data.batch_arrays`."""

_ALIGNMENT = 256  # bytes, as PyTorch's allocator aligns tensors


class Slot:
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
        features: the :func:`molgcn.data.batch_arrays.batch_arrays` of the set that the slot was made for.
        buffer: uint8, the memory of all arrays.
        x: float32 [nodes, F], atom features.
        ptr: int32 [graphs + 1], first atom of each molecule.
        rowptr: int32 [nodes + 1], first bond that points at each atom.
        col: int32 [edges], source atom of each bond.
        targets: float [graphs, L], the labels (:mod:`molgcn.data.label_columns`) in the set's dtype.
        indices: int64 [graphs], positions of the molecules in the set.
        tile_ptr: int32 [tiles + 1], first molecule of each tile.
        counts: int32 [4], numbers of molecules, atoms, bonds and tiles in use, for kernels.
        edge_code: int32 [edges], the row of `edge_table` of each bond, or None for a set without such codes. PyTorch selects rows by int32
            without a conversion.
        edge_attr: float32 [edges, D], bond features of a set that does not code them, or None.
        edge_table: float32 [K, D], the set's distinct rows of bond features, or None.
        rwse: float32 [nodes, k], random-walk encoding of the atoms, or None.
        bond_rw: float32 [edges, k], random-walk encoding of the bonds, or None.
        descriptors: float32 [graphs, K], descriptors of each molecule, or None.
        component: int32 [nodes], the component of its row to which each atom belongs, or None.
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

    @classmethod
    def of(cls, molecules: MoleculeSet, capacity: Capacity, device: str | torch.device = "cpu", pin_memory: bool = False) -> Slot:
        """Return a slot for the batches of a set.

        Args:
            molecules: the set. It decides which arrays of :mod:`molgcn.data.batch_arrays` the slot has.
            capacity: size of the slot.
            device: device of the slot.
            pin_memory: whether a slot on the CPU is page-locked.
        """
        features = batch_arrays(molecules)
        arrays = [SlotArray(array.name, array.axis, _TYPES[array.batch_type], array.batch_shape) for array in features]
        arrays.append(SlotArray("targets", "molecule", _TYPES[molecules.labels.dtype.type], molecules.labels.shape[1:]))
        slot = cls([*arrays, *ARRAYS], capacity, device=device, pin_memory=pin_memory)
        slot.features = features
        slot.edge_table = None if molecules.edge_table is None else torch.tensor(molecules.edge_table, device=device)
        return slot

    @classmethod
    def pair(cls, molecules: MoleculeSet, capacity: Capacity, **options: Any) -> tuple[Slot, Slot]:
        """Return two slots for batches of the set, made with the same keyword arguments."""
        return cls.of(molecules, capacity, **options), cls.of(molecules, capacity, **options)

    @property
    def target_words(self) -> Tensor:
        """The targets as 32-bit words, see :attr:`molgcn.data.PackedMolecules.target_words`."""
        return self.targets.view(torch.int32)

    def tensors(self) -> Iterator[Tensor]:
        return (getattr(self, name) for name in self.arrays)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
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


_TYPES: dict[type, torch.dtype] = {np.float32: torch.float32, np.float64: torch.float64, np.int32: torch.int32}


class PaddedBatch(GraphBatch):
    """A slot as one batch of constant shape, whose values change with the slot.

    Molecules without atoms are at its end. For its unused atoms and bonds see :mod:`molgcn.data.padding`.

    Args:
        slot: the slot.
        num_graphs: number of molecules.
    """

    def __init__(self, slot: Slot, num_graphs: int) -> None:
        self._edge_rows = slot.edge_attr  # not the slot itself, which would be a reference cycle
        names = ("tile_ptr", "edge_code", "edge_table", "rwse", "bond_rw", "component")
        options = slot.hints | {name: getattr(slot, name) for name in names}
        options["descriptors"] = None if slot.descriptors is None else slot.descriptors[:num_graphs]
        targets, indices = slot.targets[:num_graphs], slot.indices[:num_graphs]
        super().__init__(slot.x, slot.ptr[: num_graphs + 1], slot.rowptr, slot.col, targets, indices, **options)
        self.counts = slot.counts

    @property
    def edge_attr(self) -> Tensor | None:
        """Bond features, see :attr:`GraphBatch.edge_attr`. They are not cached, since the slot is refilled."""
        return self._edge_rows if self.edge_code is None else self._edge_attr_of_codes()

    @property
    def edge_index(self) -> Tensor:
        """Source and target of every bond, see :attr:`GraphBatch.edge_index`. They are not cached, since the slot is refilled."""
        return self._edge_index()

    @property
    def batch(self) -> Tensor:
        """The molecule of every atom, see :attr:`GraphBatch.batch`. It is not cached, since the slot is refilled."""
        return self._batch()
