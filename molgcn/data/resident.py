"""The packed set, or the packed arrays of one batch, in a GPU's memory, and the kernel that fills a slot from them (cuda/collate.cu)."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor

from molgcn.cuda_runtime.structs import Header, fill
from molgcn.data.molecule_set import MoleculeSet
from molgcn.data.packed_arrays import NAMES, BatchArray, batch_arrays
from molgcn.data.sampler import BatchSpan, EpochPlan
from molgcn.data.slots import ARRAYS, Capacity, Slot, SlotArray, torch_type

SOURCE, KERNEL, THREADS = "collate.cu", "collate", 256
_ALL_THREADS = 2**17  # of a launch, as long as a molecule has more than a warp: half as many as run at a time on an H100
_FEATURES = [name for names in NAMES.values() for name in names]
_HEADER = Header(
    "collate_structs.h",
    lists={f"{axis.upper()}_ARRAYS": names for axis, names in NAMES.items()},
    BatchSpan=[("long long" if name.startswith("first") else "int", name) for name in BatchSpan._fields],
    Parameters=[
        # the resident set
        ("const long long*", "node_ptr edge_ptr"),  # [M + 1], null if STAGED
        ("const TYPE(END_BYTES)*", "row_end"),  # [N], end of the atom's bonds, counted within its molecule
        ("const TYPE(NEIGHBOR_BYTES)*", "neighbors"),  # [E]
        # each array of molgcn.data.packed_arrays, [M, N or E] codes or rows, and the table of its codes; null if the set has none
        *((f"const TYPE({name}_CODE_BYTES)*", name) for name in _FEATURES),
        *(("const float*", f"{name}_table") for name in _FEATURES),
        ("const int*", "targets"),  # [M, target_words] 32-bit words, one for each float32 and two for each float64
        # the epoch's plan of n molecules
        ("const long long*", "plan_order plan_node_ptr plan_edge_ptr"),  # [n], [n + 1], [n + 1]
        ("const int*", "plan_tile_ptr"),
        ("const long long*", "plan_batch_ptr plan_tile_starts"),  # [num_batches + 1], null if STAGED
        # the slot
        *(("void*", f"slot_{name}") for name in _FEATURES),  # float32 rows, or int32 codes
        *(("long long*" if array.dtype == torch.int64 else "int*", f"slot_{array.name}") for array in ARRAYS),
        ("int*", "slot_targets"),
        # the batch
        ("int*", "cursor"),  # [2], number of the batch that each slot takes next; null if STAGED
        ("BatchSpan", "span"),  # used if STAGED
        ("int", "number"),  # number of the batch in the plan, -1 for cursor[slot]; not used if STAGED
        ("int", "slot num_batches max_graphs max_nodes max_tiles target_words"),
        ("int", "lanes"),  # threads that take one molecule, a divisor of a block's
    ],
)


class DeviceMolecules:
    """A packed set's arrays on one device."""

    def __init__(self, molecules: MoleculeSet, device: str | torch.device) -> None:
        self.features = batch_arrays(molecules)
        # uint8, uint16 or int32 [N], end of each atom's bonds, counted within its molecule. It replaces `degree`, so that the kernel needs
        # no running sum
        self.row_end = torch.tensor(row_ends(molecules), device=device)
        self.neighbors = torch.tensor(molecules.neighbors, device=device)  # uint8 or uint16 [E], as in :class:`molgcn.data.PackedMolecules`
        self._rest = {name: torch.tensor(getattr(molecules, name), device=device) for name in ("node_ptr", "edge_ptr")}
        self._rest["targets"] = torch.tensor(molecules.labels, device=device)
        self._rest |= {array.name: torch.tensor(array.values, device=device) for array in self.features} | tables(self.features, device)

    @classmethod
    def of(cls, molecules: MoleculeSet, device: torch.device) -> DeviceMolecules:
        """Return the set on the device.

        It is uploaded once for all loaders and jobs of the process, and freed with `molecules`.
        """
        on_devices = _RESIDENT.setdefault(molecules, {})
        if device not in on_devices:
            on_devices[device] = cls(molecules, device)
        return on_devices[device]

    def arrays(self) -> dict[str, Tensor]:
        """Return the arrays by their names in the kernel's argument."""
        return {"row_end": self.row_end, "neighbors": self.neighbors, **self._rest}


_RESIDENT: WeakKeyDictionary[MoleculeSet, dict[torch.device, DeviceMolecules]] = WeakKeyDictionary()


def is_resident(molecules: MoleculeSet, device: torch.device) -> bool:
    """Return whether the set is already on the device, see :meth:`DeviceMolecules.of`."""
    return device in _RESIDENT.get(molecules, {})


def tables(features: Sequence[BatchArray], device: str | torch.device) -> dict[str, Tensor]:
    """Return the tables in which the kernel looks up codes, by their names in its argument."""
    return {f"{array.name}_table": torch.tensor(array.table, device=device) for array in features if array.table is not None}


def macros(held: DeviceMolecules | Piece) -> dict[str, int]:
    """Return the macros with which the kernel that gathers from a set, or unpacks a piece, is compiled, see cuda/collate.cu."""
    found = {f"{name}_{what}": 0 for name in _FEATURES for what in ("COLUMNS", "CODE_BYTES")}
    for array in held.features:
        found |= {f"{array.name}_COLUMNS": array.columns, f"{array.name}_CODE_BYTES": array.code_bytes}
    sizes = {"END_BYTES": held.row_end.itemsize, "NEIGHBOR_BYTES": held.neighbors.itemsize}
    return {**sizes, "STAGED": int(isinstance(held, Piece)), **found}


def row_end_type(molecules: MoleculeSet) -> type[np.integer]:
    """Return the type of :attr:`DeviceMolecules.row_end`, the smallest that holds the number of bonds of any molecule."""
    largest = int(np.diff(molecules.edge_ptr).max())
    return np.uint8 if largest < 2**8 else np.uint16 if largest < 2**16 else np.int32


def row_ends(molecules: MoleculeSet) -> np.ndarray:
    """Return the end of each atom's bonds, counted within its molecule, [N], see :attr:`DeviceMolecules.row_end`."""
    ends = np.cumsum(molecules.degree, dtype=np.int64) - np.repeat(molecules.edge_ptr[:-1], molecules.num_nodes_per_graph)
    return ends.astype(row_end_type(molecules))


def resident_bytes(molecules: MoleculeSet) -> int:
    """Return an upper bound on the bytes that a :class:`DeviceMolecules` takes."""
    arrays = [molecules.node_ptr, molecules.edge_ptr, molecules.neighbors, molecules.labels]
    arrays += [stored for array in batch_arrays(molecules) for stored in (array.values, array.table) if stored is not None]
    return sum(array.nbytes for array in arrays) + 4 * molecules.num_nodes


class Piece(Slot):
    """The packed arrays of one batch in one buffer, so that one copy moves them all to a GPU that does not hold the set.

    Its arrays are `order`, `node_ptr`, `edge_ptr` and `tile_ptr`, sections of the :class:`~molgcn.data.sampler.EpochPlan`, and `targets`,
    `row_end`, `neighbors` and those of :attr:`features`, as :class:`DeviceMolecules` has them, for the batch alone.
    """

    row_end: Tensor
    neighbors: Tensor

    def __init__(self, molecules: MoleculeSet, capacity: Capacity, device: str | torch.device = "cpu", pin_memory: bool = False) -> None:
        features, labels = batch_arrays(molecules), molecules.labels
        arrays = [
            SlotArray("order", "molecule", torch.int64),
            SlotArray("node_ptr", "molecule + 1", torch.int64),
            SlotArray("edge_ptr", "molecule + 1", torch.int64),
            SlotArray("tile_ptr", "tile + 1"),
            SlotArray("targets", "molecule", torch_type(labels.dtype), labels.shape[1:]),
            SlotArray("row_end", "atom", torch_type(row_end_type(molecules))),
            SlotArray("neighbors", "bond", torch_type(molecules.neighbors.dtype)),
        ]
        for array in reversed(features):  # x last
            arrays.append(SlotArray(array.name, array.axis, torch_type(array.values.dtype), array.values.shape[1:]))
        super().__init__(arrays, capacity, device=device, pin_memory=pin_memory)
        self.features = features

    def used_bytes(self, span: BatchSpan) -> int:
        """Return the number of bytes at the start of the buffer that hold the batch of `span`."""
        return self.x.data_ptr() - self.buffer.data_ptr() + span.num_nodes * self.x[:1].nbytes

    def kernel_arrays(self) -> dict[str, Tensor]:
        """Return the arrays by their names in the kernel's argument, see :class:`Launch`."""
        plan = ("order", "node_ptr", "edge_ptr", "tile_ptr")
        return {f"plan_{name}" if name in plan else name: getattr(self, name) for name in self.arrays}


class PlanBuffer:
    """A buffer on one device that holds the plan of one epoch at a time, at the same address for every epoch.

    All plans of a loader have the same number of batches, and at most the first one's `room` of molecules.
    """

    names = ("order", "node_ptr", "edge_ptr", "tile_ptr", "batch_ptr", "tile_starts")

    def __init__(self, plan: EpochPlan, device: str | torch.device = "cpu", pin_memory: bool = False) -> None:
        def empty(count: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.empty(count, dtype=dtype, device=device, pin_memory=pin_memory)

        count = max(len(plan.order), plan.room)
        self.order, self.node_ptr, self.edge_ptr = empty(count), empty(count + 1), empty(count + 1)
        self.tile_ptr = empty(count + len(plan), torch.int32)  # at most one tile for each molecule
        self.batch_ptr, self.tile_starts = empty(len(plan) + 1), empty(len(plan) + 1)

    def copy_(self, plan: EpochPlan) -> PlanBuffer:
        """Copy a plan into the buffer, asynchronously if the plan is page-locked and the buffer on a GPU."""
        for name in self.names:
            source = torch.from_numpy(getattr(plan, name))
            getattr(self, name)[: len(source)].copy_(source, non_blocking=True)
        return self

    def arrays(self) -> dict[str, Tensor]:
        """Return the arrays by their names in the kernel's argument."""
        return {f"plan_{name}": getattr(self, name) for name in self.names}

    def view(self, plan: EpochPlan) -> EpochPlan:
        """Return `plan` with its arrays in this buffer, which must be on the CPU."""
        return replace(plan, **{name: getattr(self, name)[: len(getattr(plan, name))].numpy() for name in self.names})


class Launch:
    """The arguments of all launches that fill one slot.

    The arrays of the set and the plan, and the cursor, have their names in the kernel's argument; those that are not given are null. The
    slot is number 0 or 1 of its pair.
    """

    def __init__(self, arrays: dict[str, Tensor], slot: Slot, number: int = 0, num_batches: int = 0) -> None:
        capacity = slot.capacity
        lanes = THREADS
        while lanes > 32 and lanes * capacity.graphs > _ALL_THREADS:
            lanes //= 2
        self.grid = -(-capacity.graphs * lanes // THREADS)
        room = {"max_graphs": capacity.graphs, "max_nodes": capacity.nodes, "max_tiles": capacity.tiles}
        numbers = {"slot": number, "num_batches": num_batches, "target_words": slot.target_words.shape[1], "lanes": lanes, **room}
        places = {f"slot_{name}": getattr(slot, name) for name in slot.arrays}
        self._parameters = fill(_HEADER.ctype()(), {**numbers, **arrays, **places})

    def batch(self, number: int) -> ctypes.Structure:
        """Return the argument of the launch that fills in batch `number` of the plan. With -1 the cursor on the device says which batch."""
        self._parameters.number = number
        return self._parameters

    def piece(self, span: BatchSpan) -> ctypes.Structure:
        """Return the argument of the launch that fills a slot from a :class:`Piece` holding the batch of `span`."""
        self._parameters.span = _HEADER.ctype("BatchSpan")(*span._replace(first_graph=0, first_tile=0))
        return self._parameters
