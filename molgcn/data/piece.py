"""A batch's part of the packed set, still packed: what travels to a GPU that does not hold the set."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from molgcn.data.batch_arrays import batch_arrays
from molgcn.data.capacity import Capacity
from molgcn.data.packed import PackedMolecules
from molgcn.data.resident import row_end_type
from molgcn.data.sampler import BatchSpan

_ALIGNMENT = 16


class Piece:
    """The arrays of one batch, one behind the other in one buffer, so that one copy moves them all.

    Args:
        molecules: the set.
        capacity: of the slots.
        device: where it lies.
        pin_memory: on the CPU: page-locked.

    Attributes:
        buffer: uint8, all of it.
        order: int64 [graphs], the molecules; as `node_ptr` and `edge_ptr` int64 [graphs + 1] and `tile_ptr` int32 [tiles + 1] a part of the
            epoch's plan.
        targets: float [graphs, L], the labels, in the set's dtype.
        row_end: [nodes], as in :class:`molgcn.data.resident.DeviceMolecules`.
        neighbors: [edges], as in :class:`molgcn.data.PackedMolecules`.
        features: the set's :func:`molgcn.data.batch_arrays.batch_arrays`, which it has as the set stores them: [graphs],
            [nodes] or [edges] codes, or rows.
    """

    order: Tensor
    node_ptr: Tensor
    edge_ptr: Tensor
    tile_ptr: Tensor
    targets: Tensor
    row_end: Tensor
    neighbors: Tensor
    x: Tensor

    def __init__(
        self, molecules: PackedMolecules, capacity: Capacity, device: str | torch.device = "cpu", pin_memory: bool = False
    ) -> None:
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
        """Bytes of the buffer that the batch of `span` reaches to."""
        return self._x_start + span.num_nodes * self._atom_bytes

    def arrays(self) -> dict[str, Tensor]:
        """The arrays by the names of :class:`molgcn.data.resident.Parameters`."""
        plan = ("order", "node_ptr", "edge_ptr", "tile_ptr")
        return {f"plan_{name}" if name in plan else name: getattr(self, name) for name in self._names}
