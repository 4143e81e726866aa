"""Iterables of batches: what training reads from. Of the same set both loaders give the same batches in the same order."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from molgcn.data.batch import GraphBatch
from molgcn.data.batch_arrays import batch_arrays
from molgcn.data.capacity import Capacity
from molgcn.data.feed import make_feed
from molgcn.data.packed import PackedMolecules
from molgcn.data.packed_arrays import check_once
from molgcn.data.planning import PlanAhead
from molgcn.data.sampler import MoleculeSampler


class MoleculeLoader(ABC):
    """A sized iterable of :class:`GraphBatch`, as a `DataLoader` is, that can be interrupted and resumed between any two batches.

    One `iter` reads one epoch, each epoch with its own permutation; `set_epoch` chooses another. An iteration that was broken off starts
    the same epoch again, unless `load_state_dict` put the loader in its middle.

    Args:
        molecules: the set.
        batch_size: molecules a batch, B; the last batch may be shorter.
        shuffle: a new permutation every epoch, else in order.
        seed: of the permutations.
        rank: this process, 0 ... world_size - 1; each reads its own share.
        world_size: processes.
        drop_last: leave a short last batch out.
        join_single: let a single molecule that is left over join the batch before.
        device: where the batches are to be.
        tile_nodes: node places of their tiles, T; default 64, or 128 where a molecule needs it.
        classes: float [M], of which epochs are to have equally many molecules each; see the sampler.

    Raises:
        UserError: see :class:`molgcn.data.sampler.MoleculeSampler`.
    """

    def __init__(
        self,
        molecules: PackedMolecules,
        batch_size: int,
        shuffle: bool = True,
        seed: int = 0,
        *,
        rank: int = 0,
        world_size: int = 1,
        drop_last: bool = False,
        join_single: bool = False,
        device: str | torch.device = "cpu",
        tile_nodes: int | None = None,
        classes: np.ndarray | None = None,
    ) -> None:
        check_once(molecules)
        self.molecules = molecules
        self.batch_size = batch_size
        self.device = torch.device(device)
        sizes = molecules.num_nodes_per_graph, np.diff(molecules.edge_ptr)
        self.sampler = MoleculeSampler(*sizes, batch_size, shuffle, seed, rank, world_size, drop_last, join_single, tile_nodes, classes)
        self.plan = PlanAhead(self.sampler)

    def __len__(self) -> int:
        """Batches an epoch."""
        return len(self.sampler)

    def __iter__(self) -> Iterator[GraphBatch]:
        """Reads the current epoch, or what is left of it after `load_state_dict`."""
        start = self.sampler.begin()
        for batch in self.read(self.sampler.epoch, start):
            self.sampler.advance()
            yield batch

    @abstractmethod
    def read(self, epoch: int, start: int) -> Iterator[GraphBatch]:
        """The batches of `epoch` from number `start` on."""

    def set_epoch(self, epoch: int) -> None:
        """Makes `epoch` the next to be read; without effect while it is half read."""
        self.sampler.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the reading stands: counts the batches handed out, not those prepared ahead."""
        return self.sampler.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The next `iter` goes on where `state_dict` was taken.

        Raises:
            UserError: when the state belongs to a run with other batches.
        """
        self.sampler.load_state_dict(state)


class PackedLoader(MoleculeLoader):
    """Gathers batches from the packed arrays into two slots of fixed stride, one filled while the other is computed on.

    A batch is a view of its slot, valid until the next one is asked for (:class:`molgcn.data.slots.SlotBatch`); `batch.clone()` keeps
    it, `batch.padded` is the slot in its full, never changing shape. On a GPU the work on a batch belongs on the stream that was current
    when the batch was asked for.

    Args:
        molecules: the set.
        batch_size: molecules a batch, B.
        resident: on a GPU: keep the packed set in its memory and gather there (True), gather on the CPU (False), or "auto", which takes
            the GPU's memory if the set fits in half of what is free.
        num_threads: that gather on the CPU, beside the threads that compute; default 1 for the CPU, up to 8 for a GPU.
        slot_nodes: atoms a slot has places for; default what the set's B largest molecules have.
        slot_edges: bonds a slot has places for; default likewise.
        options: as :class:`MoleculeLoader`.

    Raises:
        UserError: when `slot_nodes` or `slot_edges` is less than some batch of the set may need, or the set does not fit where
            `resident=True` asks for it.
    """

    def __init__(
        self,
        molecules: PackedMolecules,
        batch_size: int,
        *args: Any,
        resident: bool | Literal["auto"] = "auto",
        num_threads: int | None = None,
        slot_nodes: int | None = None,
        slot_edges: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__(molecules, batch_size, *args, **options)
        places = self.sampler.largest_batch, slot_nodes, slot_edges, self.sampler.tile_nodes
        self.capacity = Capacity.of(molecules, *places, repeats=self.sampler.repeats)
        self._feed = make_feed(molecules, self.capacity, self.device, resident, num_threads)
        self.plan.stage = getattr(self._feed, "stage", None)

    def read(self, epoch: int, start: int) -> Iterator[GraphBatch]:
        """The batches of `epoch` from number `start` on."""
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
    """The batches of :class:`PackedLoader`, collated by `torch_geometric.loader.DataLoader`: to tell loader from kernels.

    Args:
        molecules: the set; all its `Data` objects are made at once, as PyG's in-memory data sets do.
        batch_size: molecules a batch, B.
        num_workers: processes that collate; 0 collates in this one.
        options: as :class:`MoleculeLoader`.
    """

    def __init__(self, molecules: PackedMolecules, batch_size: int, *args: Any, num_workers: int = 0, **options: Any) -> None:
        super().__init__(molecules, batch_size, *args, **options)
        self.num_workers = num_workers
        self._data = molecules.to_pyg()
        self._edge_table = None if molecules.edge_table is None else torch.tensor(molecules.edge_table, device=self.device)
        starts = {"molecule": np.arange(len(molecules) + 1), "atom": molecules.node_ptr, "bond": molecules.edge_ptr}
        for number, item in enumerate(self._data):
            item.indices, item.edge_attr = torch.tensor([number]), None
            for array in batch_arrays(molecules):
                first, last = starts[array.axis][number : number + 2]
                setattr(item, array.name, torch.from_numpy(array.take(slice(first, last))))

    def read(self, epoch: int, start: int) -> Iterator[GraphBatch]:
        """The batches of `epoch` from number `start` on."""
        from torch_geometric.loader import DataLoader

        plan = self.plan(epoch)
        order = [plan.batch(number)[0].tolist() for number in range(start, len(plan))]
        loader = DataLoader(
            self._data,
            batch_sampler=order,
            num_workers=self.num_workers,
            pin_memory=self.device.type == "cuda",
            generator=torch.Generator(),  # a DataLoader draws a seed when it starts: not from the generator that a checkpoint keeps
        )
        for number, batch in enumerate(loader, start):
            yield self._graph_batch(batch.to(self.device, non_blocking=True), torch.from_numpy(plan.batch(number)[1]))

    def _graph_batch(self, batch: Any, tile_ptr: Tensor) -> GraphBatch:
        """Takes PyG's tensors as they are: its edges are in CSR order already, since the `Data` came from the packed set."""
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
