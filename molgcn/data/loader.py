"""The loaders that training reads batches from. For the same set both give the same batches in the same order."""

from __future__ import annotations

import logging
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, MutableMapping
from functools import cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from molgcn.data.batch import GraphBatch
from molgcn.data.feed import CPUFeed, Feed
from molgcn.data.molecule_set import MoleculeSet
from molgcn.data.packed_arrays import batch_arrays
from molgcn.data.plan_ahead import PlanAhead
from molgcn.data.pyg import unpack_pyg
from molgcn.data.resident import is_resident, resident_bytes
from molgcn.data.sampler import MoleculeSampler
from molgcn.data.set_checks import check_once
from molgcn.data.slots import Capacity, Slot
from molgcn.data.tiles import HAS_EXTENSION
from molgcn.errors import UserError

log = logging.getLogger(__name__)


class MoleculeLoader(ABC):
    """A sized iterable of :class:`GraphBatch`, like a `DataLoader`, that can be resumed between any two batches.

    Each `iter` reads one epoch with its own permutation. `set_epoch` chooses the epoch. An iteration that was broken off starts the same
    epoch again, unless `load_state_dict` has set a position inside it.

    Args:
        molecules: the set.
        batch_size: number of molecules in a batch, B. The last batch may be smaller.
        shuffle: whether each epoch has a new permutation. False keeps the order of the set.
        seed: seed of the permutations.
        device: device of the batches.
        options: further keyword arguments of :class:`molgcn.data.sampler.MoleculeSampler`.

    Attributes:
        waited: seconds that the consumer has waited for batches so far.

    Raises:
        UserError: for the same reasons as :class:`molgcn.data.sampler.MoleculeSampler`.
    """

    batch_sampler = None  # Lightning looks at it and at `sampler` to set the epoch

    def __init__(
        self,
        molecules: MoleculeSet,
        batch_size: int,
        shuffle: bool = True,
        seed: int = 0,
        *,
        device: str | torch.device = "cpu",
        **options: Any,
    ) -> None:
        check_once(molecules)
        self.molecules = molecules
        self.batch_size = batch_size
        self.device = torch.device(device)
        self.waited = 0.0
        sizes = molecules.num_nodes_per_graph, np.diff(molecules.edge_ptr)
        self.sampler = MoleculeSampler(*sizes, batch_size, shuffle, seed, **options)
        self.plan = PlanAhead(self.sampler)

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[GraphBatch]:
        """Read the current epoch, or the rest of it after `load_state_dict`."""
        first = self.sampler.begin()
        start = time.perf_counter()
        for batch in self.read(self.sampler.epoch, first):
            self.waited += time.perf_counter() - start
            self.sampler.advance()
            yield batch
            start = time.perf_counter()

    @abstractmethod
    def read(self, epoch: int, start: int) -> Iterator[GraphBatch]:
        """Yield the batches of `epoch` from number `start` on."""

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch to be read next. This has no effect if that epoch is partly read."""
        self.sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the reading, which counts batches that were handed out and not those prepared ahead."""
        return self.sampler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next `iter` go on where `state_dict` was taken, in a run with the same order of molecules on as many ranks or others."""
        self.sampler.load_state_dict(state)
        self.plan.forget()


class PackedLoader(MoleculeLoader):
    """Gathers batches from the packed arrays into two slots of fixed size, one filled while the other is computed on.

    A batch is a view of its slot and valid until the next batch is asked for (:class:`molgcn.data.slot_batch.SlotBatch`). `batch.clone()`
    keeps it. `batch.padded` is the slot at its full, constant shape. On a GPU, work on a batch must be on the stream that was current when
    the batch was asked for.

    Args:
        molecules: the set.
        batch_size: number of molecules in a batch, B.
        args: further positional arguments of :class:`MoleculeLoader`.
        resident: whether batches on a GPU are gathered from a packed set in its memory (True) or on the CPU (False). "auto" takes the
            GPU's memory if the set fits into half of what is free.
        num_threads: number of threads that gather on the CPU, beside the threads that compute. Default: 1 for the CPU, up to 8 for a GPU.
        options: keyword arguments of :class:`MoleculeLoader`.

    Raises:
        UserError: when the set does not fit into the GPU's memory with `resident=True`.
    """

    def __init__(
        self,
        molecules: MoleculeSet,
        batch_size: int,
        *args: Any,
        resident: bool | Literal["auto"] = "auto",
        num_threads: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(molecules, batch_size, *args, **options)
        self.capacity = Capacity.of(molecules, self.sampler.largest_batch, self.sampler.tile_nodes, self.sampler.repeats)
        self._feed = _make_feed(molecules, self.capacity, self.device, resident, num_threads)
        self.plan.stage = getattr(self._feed, "stage", None)

    def read(self, epoch: int, start: int) -> Iterator[GraphBatch]:
        """Yield the batches of `epoch` from number `start` on."""
        if self._feed is not None:
            self._feed.settle()
            yield from self._feed.read(self.plan(epoch), start)
            return
        plan = self.plan(epoch)
        for number in range(start, len(plan)):
            indices, tile_ptr = plan.batch(number)
            batch = GraphBatch.from_packed(self.molecules, indices, tile_ptr, self.sampler.tile_nodes)
            yield batch.to(self.device, non_blocking=True)


class PyGLoader(MoleculeLoader):
    """Gives the batches of :class:`PackedLoader`, collated by `torch_geometric.loader.DataLoader`.

    With it the speed of the loader and that of the kernels can be measured separately.

    Args:
        molecules: the set. All its `Data` objects are made at once, as in PyG's in-memory data sets.
        batch_size: number of molecules in a batch, B.
        args: further positional arguments of :class:`MoleculeLoader`.
        num_workers: number of processes that collate. 0 collates in this process.
        unpacked: the `Data` objects of sets that other loaders have made, to which this one adds. None means that it shares none.
        options: keyword arguments of :class:`MoleculeLoader`.
    """

    def __init__(
        self,
        molecules: MoleculeSet,
        batch_size: int,
        *args: Any,
        num_workers: int = 0,
        unpacked: MutableMapping[MoleculeSet, list[Any]] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(molecules, batch_size, *args, **options)
        self.num_workers = num_workers
        unpacked = {} if unpacked is None else unpacked
        if molecules not in unpacked:
            unpacked[molecules] = _unpacked(molecules)
        self._data = unpacked[molecules]
        self._edge_table = None if molecules.edge_table is None else torch.tensor(molecules.edge_table, device=self.device)

    def read(self, epoch: int, start: int) -> Iterator[GraphBatch]:
        """Yield the batches of `epoch` from number `start` on."""
        from torch_geometric.loader import DataLoader

        plan = self.plan(epoch)
        order = [plan.batch(number)[0].tolist() for number in range(start, len(plan))]
        loader = DataLoader(
            self._data,
            batch_sampler=order,
            num_workers=self.num_workers,
            pin_memory=self.device.type == "cuda",
            generator=torch.Generator(),  # a DataLoader draws a seed when it starts, not from the generator that checkpoints keep
        )
        for number, batch in enumerate(loader, start):
            yield self._graph_batch(batch.to(self.device, non_blocking=True), torch.from_numpy(plan.batch(number)[1]))

    def _graph_batch(self, batch: Any, tile_ptr: Tensor) -> GraphBatch:
        """Convert PyG's batch without sorting, since edges of `Data` from a packed set are already in CSR order."""
        targets = torch.zeros(batch.num_graphs, 0, device=self.device) if batch.y is None else batch.y
        gathered: dict[str, Any] = {array.name: getattr(batch, array.name) for array in batch_arrays(self.molecules)}
        graphs = GraphBatch(
            gathered.pop("x"),
            batch.ptr.int(),
            torch.searchsorted(batch.edge_index[1], torch.arange(batch.num_nodes + 1, device=self.device), out_int32=True),
            batch.edge_index[0].int(),
            targets,
            batch.indices,
            tile_nodes=self.sampler.tile_nodes,
            tile_ptr=tile_ptr.to(self.device),
            large_molecules=self.molecules.largest > self.sampler.tile_nodes,
            edge_table=self._edge_table,
            **gathered,
        )
        graphs.edge_index, graphs.batch = batch.edge_index, batch.batch
        return graphs


def _make_feed(
    molecules: MoleculeSet, capacity: Capacity, device: torch.device, resident: bool | Literal["auto"], num_threads: int | None
) -> Feed | None:
    """Return the fastest feed for the device, or None where batches have to be gathered by NumPy."""
    if resident not in (True, False, "auto"):
        raise UserError(f"dataset.resident={resident} is unknown. Expected auto, true or false.")
    if num_threads is not None and num_threads < 1:
        raise UserError(f"num_threads={num_threads} is not valid: expected at least 1, or None to leave it to the loader.")
    if device.type == "cuda":
        from molgcn.data.feed_cuda import ResidentFeed, StagedFeed

        device = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        if resident is True or (resident == "auto" and _fits(molecules, device, 0.5)):
            if not _fits(molecules, device, 1.0):
                raise UserError(
                    f"The packed set needs {resident_bytes(molecules) / 2**30:.1f} GiB, more than is free in the memory of {device}. "
                    "Use dataset.resident=auto or false, which gather on the CPU."
                )
            return ResidentFeed(molecules, capacity, device)
        if HAS_EXTENSION:
            return StagedFeed(molecules, capacity, device, num_threads or min(8, max(1, (os.cpu_count() or 1) - 1)))
    elif HAS_EXTENSION and device.type == "cpu":
        return CPUFeed(molecules, Slot.pair(molecules, capacity), num_threads or 1)
    if not HAS_EXTENSION:
        warn_of_numpy()
    return None


@cache
def warn_of_numpy() -> None:
    """Warn once, and not for each part of each training."""
    log.warning("Batches are gathered by NumPy, since the C++ extension is not built: run `pip install -e .` with a compiler.")


def _fits(molecules: MoleculeSet, device: torch.device, share: float) -> bool:
    return is_resident(molecules, device) or resident_bytes(molecules) <= share * torch.cuda.mem_get_info(device)[0]


def _unpacked(molecules: MoleculeSet) -> list[Any]:
    """Return PyG's `Data` of all molecules, with what a batch holds beside PyG's own."""
    data = unpack_pyg(molecules)
    starts = {"molecule": np.arange(len(molecules) + 1), "atom": molecules.node_ptr, "bond": molecules.edge_ptr}
    for number, item in enumerate(data):
        item.indices, item.edge_attr = torch.tensor([number]), None
        for array in batch_arrays(molecules):
            first, last = starts[array.axis][number : number + 2]
            setattr(item, array.name, torch.from_numpy(array.take(slice(first, last))))
    return data
