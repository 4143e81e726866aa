"""loader=pyg: PyTorch Geometric's DataLoader over `Data` objects, to tell the effect of the loader from that of the kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from molgcn.data.batch import GraphBatch
from molgcn.data.loader import MoleculeLoader
from molgcn.data.packed import PackedMolecules


class PyGLoader(MoleculeLoader):
    """The batches of :class:`molgcn.data.loader.PackedLoader`, collated by `torch_geometric.loader.DataLoader`.

    Args:
        molecules: the set; all its `Data` objects are made at once, as PyG's in-memory data sets do.
        batch_size: molecules a batch, B.
        num_workers: processes that collate; 0 collates in this one.
        as_graph_batch: False yields PyG's own `Batch` (x, edge_index, y, batch, ptr, indices) for comparisons of loaders alone.
        options: as :class:`MoleculeLoader`.
    """

    def __init__(
        self, molecules: PackedMolecules, batch_size: int, *args: Any, num_workers: int = 0, as_graph_batch: bool = True, **options: Any
    ) -> None:
        super().__init__(molecules, batch_size, *args, **options)
        self.num_workers = num_workers
        self.as_graph_batch = as_graph_batch
        self._data = molecules.to_pyg()
        for number, item in enumerate(self._data):
            item.indices = torch.tensor([number])

    def read(self, epoch: int, start: int) -> Iterator[Any]:
        """The batches of `epoch` from number `start` on."""
        from torch_geometric.loader import DataLoader

        plan = self.sampler.plan(epoch)
        order = [plan.batch(number)[0].tolist() for number in range(start, len(plan))]
        loader = DataLoader(self._data, batch_sampler=order, num_workers=self.num_workers, pin_memory=self.device.type == "cuda")
        for number, batch in enumerate(loader, start):
            batch = batch.to(self.device, non_blocking=True)
            yield self._graph_batch(batch, plan.batch(number)[1]) if self.as_graph_batch else batch

    def _graph_batch(self, batch: Any, tile_ptr: Any) -> GraphBatch:
        graphs = GraphBatch.from_pyg(batch)
        graphs.indices = batch.indices
        graphs.tile_nodes = self.sampler.tile_nodes
        graphs.tile_ptr = torch.tensor(tile_ptr, device=self.device)
        return graphs
