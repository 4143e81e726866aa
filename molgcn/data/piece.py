"""The packed arrays of one batch, which are copied to a GPU that does not hold the set."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from molgcn.data.batch_arrays import batch_arrays
from molgcn.data.capacity import Capacity
from molgcn.data.molecule_set import MoleculeSet
from molgcn.data.resident import row_end_type
from molgcn.data.sampler import BatchSpan

_ALIGNMENT = 16


class Piece:
    """The packed arrays of one batch in one buffer, so that one copy moves them all.

    Args:
        molecules: the set.
        capacity: size of the slots.
        device: device of the buffer.
        pin_memory: whether a buffer on the CPU is page-locked.

    Attributes:
        buffer: uint8, the memory of all arrays.
        order: int64 [graphs], the molecules, a section of :attr:`molgcn.data.sampler.EpochPlan.order`.
        node_ptr: int64 [graphs + 1], a section of the plan's `node_ptr`.
        edge_ptr: int64 [graphs + 1], a section of the plan's `edge_ptr`.
        tile_ptr: int32 [tiles + 1], a section of the plan's `tile_ptr`.
        targets: float [graphs, L], the labels in the set's dtype.
        row_end: [nodes], as in :class:`molgcn.data.resident.DeviceMolecules`.
        neighbors: [edges], as in :class:`molgcn.data.PackedMolecules`.
        features: the set's :func:`molgcn.data.batch_arrays.batch_arrays`. The piece has an attribute for each, with the codes or rows of
            the set for [graphs], [nodes] or [edges].
    """

    order: Tensor
    node_ptr: Tensor
    edge_ptr: Tensor
    tile_ptr: Tensor
    targets: Tensor
    row_end: Tensor
    neighbors: Tensor
    x: Tensor

    def __init__(self, molecules: MoleculeSet, capacity: Capacity, device: str | torch.device = "cpu", pin_memory: bool = False) -> None:
        self.capacity = capacity
        self.features = batch_arrays(molecules)
        places = {"molecule": capacity.graphs, "atom": capacity.nodes, "bond": capacity.edges}
        shapes: dict[str, tuple[tuple[int, ...], type | np.dtype]] = {
            "order": ((capacity.graphs,), np.int64),
            "node_ptr": ((capacity.graphs + 1,), np.int64),
            "edge_ptr": ((capacity.graphs + 1,), np.int64),
            "tile_ptr": ((capacity.tiles + 1,), np.int32),
            "targets": ((capacity.graphs, molecules.labels.shape[1]), molecules.labels.dtype),
            "row_end": ((capacity.nodes,), row_end_type(molecules)),
            "neighbors": ((capacity.edges,), molecules.neighbors.dtype),
        }
        for array in reversed(self.features):  # x last
            shapes[array.name] = (places[array.axis], *array.values.shape[1:]), array.values.dtype
        self._names = tuple(shapes)
        sizes = {name: int(np.prod(shape)) * np.dtype(dtype).itemsize for name, (shape, dtype) in shapes.items()}
        starts = dict(zip(sizes, np.cumsum([0] + [-(-size // _ALIGNMENT) * _ALIGNMENT for size in sizes.values()]).tolist(), strict=False))
        self.buffer = torch.zeros(starts["x"] + sizes["x"], dtype=torch.uint8, device=device, pin_memory=pin_memory)
        for name, (shape, dtype) in shapes.items():
            section = self.buffer[starts[name] : starts[name] + sizes[name]]
            setattr(self, name, section.view(torch.from_numpy(np.zeros(0, dtype)).dtype).view(shape))
        self._x_start, self._atom_bytes = starts["x"], sizes["x"] // capacity.nodes

    @property
    def target_words(self) -> Tensor:
        """The targets as 32-bit words, see :attr:`molgcn.data.PackedMolecules.target_words`."""
        return self.targets.view(torch.int32)

    def used_bytes(self, span: BatchSpan) -> int:
        """Return the number of bytes at the start of the buffer that hold the batch of `span`."""
        return self._x_start + span.num_nodes * self._atom_bytes

    def arrays(self) -> dict[str, Tensor]:
        """Return the arrays by their names in the kernel's argument, see :mod:`molgcn.data.resident`."""
        plan = ("order", "node_ptr", "edge_ptr", "tile_ptr")
        return {f"plan_{name}" if name in plan else name: getattr(self, name) for name in self._names}
