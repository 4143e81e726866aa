"""One batch of molecules as tensors, in CSR order."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from molgcn.data.molecule_set import MoleculeSet
from molgcn.data.packed_arrays import batch_arrays
from molgcn.data.pyg import batch_of_pyg
from molgcn.data.segments import pointers
from molgcn.data.set_checks import check_once
from molgcn.data.tiles import next_fit, tile_size
from molgcn.errors import UserError

OPTIONAL = ("rwse", "bond_rw", "descriptors", "component", "atom_targets", "bond_targets")  # what a network or a loss may read

_OF_BONDS = ("edge_attr", "edge_code", "edge_table")


class BatchTensors:
    """The tensors of a batch or of a slot; see :class:`GraphBatch`."""

    x: Tensor
    ptr: Tensor
    rowptr: Tensor
    col: Tensor
    targets: Tensor
    indices: Tensor
    edge_code: Tensor | None = None
    edge_table: Tensor | None = None
    rwse: Tensor | None = None
    bond_rw: Tensor | None = None
    descriptors: Tensor | None = None
    component: Tensor | None = None
    atom_targets: Tensor | None = None
    bond_targets: Tensor | None = None


class GraphBatch(BatchTensors):
    """A batch of B molecules with N atoms and E directed bonds, the input of the models.

    The attributes hold real atoms and molecules only, without padding. Atoms keep their order. Bonds are sorted by target, then source.

    Args:
        x: float [N, F], atom features. May be replaced, for example by a tensor that requires a gradient.
        ptr: int32 [B + 1], first atom of each molecule.
        rowptr: int32 [N + 1], first bond that points at each atom.
        col: int32 [E], source atom of each bond, counted through the batch.
        targets: float [B, T], NaN where missing. A set with bounds or weights has [B, 2 T + 1], see :mod:`molgcn.data.label_columns`.
        indices: int64 [B], positions of the molecules in the packed set. Default: 0, 1, ...
        tile_nodes: number of atoms that a tile has room for. Default: 64, or 128 where a molecule needs it.
        tile_ptr: int32 [tiles + 1], first molecule of each tile. Default: as many molecules per tile as fit, in their order.
        large_molecules: whether a molecule or a tile may have more than `tile_nodes` atoms. Default: True where `tile_nodes` or
            `tile_ptr` is given, else read from the molecules. With False the kernels take half as long to compile.
        leaves_merged: whether equal leaves are one row, see :func:`molgcn.data.merge_leaves.merge_leaves`.
        edge_attr: float [E, D], bond features in the order of `col`, or None. May be replaced. Not needed where `edge_code` is given.
        edge_code: int32 [E], the row of `edge_table` of each bond, or None where bond features are not coded.
        edge_table: float [K, D], distinct rows of bond features, or None.
        rwse: float [N, k], random-walk encoding of the atoms, or None.
        bond_rw: float [E, k], random-walk encoding of the bonds, or None.
        descriptors: float [B, K], descriptors of each molecule, or None.
        component: int32 [N], the component of its row to which each atom belongs, or None where a row is one molecule.
        atom_targets: float [N, A], targets of the atoms, NaN where missing, or None.
        bond_targets: float [E, C], targets of the bonds, NaN where missing, or None; see :class:`molgcn.data.molecule_set.MoleculeSet`.

    Attributes:
        padded: the same batch at the full, constant shape of its slot, for captured steps. None where the batch lies in no slot.
        counts: int32 [4] on the device: molecules, atoms, bonds and tiles in use of a padded batch. None for any other batch.
    """

    padded: GraphBatch | None = None
    counts: Tensor | None = None
    leaves_merged: bool = False

    def __init__(
        self,
        x: Tensor,
        ptr: Tensor,
        rowptr: Tensor,
        col: Tensor,
        targets: Tensor,
        indices: Tensor | None = None,
        *,
        tile_nodes: int | None = None,
        tile_ptr: Tensor | None = None,
        large_molecules: bool | None = None,
        leaves_merged: bool = False,
        **optional: Tensor | None,
    ) -> None:
        if unknown := optional.keys() - {*OPTIONAL, *_OF_BONDS}:
            raise TypeError(f"a batch has no {min(unknown)}")
        self.x = x
        self.ptr = ptr
        self.rowptr = rowptr
        self.col = col
        self.targets = targets
        self.indices = torch.arange(self.num_graphs, device=ptr.device) if indices is None else indices
        self.leaves_merged = leaves_merged
        vars(self).update({name: tensor for name, tensor in optional.items() if tensor is not None})
        if tile_nodes is not None:
            self.tile_nodes = tile_nodes
        if any(hint is not None for hint in (tile_nodes, tile_ptr, large_molecules)):
            self.large_molecules = large_molecules is not False
        if tile_ptr is not None:
            self.tile_ptr = tile_ptr

    @classmethod
    def from_packed(
        cls, molecules: MoleculeSet, indices: Any, tile_ptr: np.ndarray | None = None, tile_nodes: int | None = None
    ) -> GraphBatch:
        """Gather the molecules of a packed set at `indices` into a batch.

        Args:
            molecules: the packed set.
            indices: int, slice, bool mask or int array.
            tile_ptr: int32 [tiles + 1], first molecule of each tile. Default: as many molecules per tile as fit.
            tile_nodes: number of atoms that a tile has room for. Default: that of the set.
        """
        check_once(molecules)
        indices, tile_nodes = np.atleast_1d(np.arange(len(molecules))[indices]), tile_nodes or molecules.tile_nodes
        places, num_nodes, num_edges = molecules.places_of(indices)
        ptr = pointers(num_nodes, np.int32)
        col = molecules.neighbors[places["bond"]] + np.repeat(ptr[:-1], num_edges)
        gathered = {array.name: torch.from_numpy(array.take(places[array.axis])) for array in batch_arrays(molecules)}
        return cls(
            gathered.pop("x"),
            torch.from_numpy(ptr),
            torch.from_numpy(pointers(molecules.degree[places["atom"]], np.int32)),
            torch.from_numpy(col.astype(np.int32)),
            torch.from_numpy(molecules.labels[indices]),
            torch.from_numpy(indices),
            tile_nodes=tile_nodes,
            tile_ptr=None if tile_ptr is None else torch.from_numpy(tile_ptr),
            large_molecules=molecules.largest > tile_nodes,
            leaves_merged=molecules.leaves_merged,
            edge_table=None if molecules.edge_table is None else torch.tensor(molecules.edge_table, device="cpu"),
            **gathered,
        )

    @classmethod
    def from_pyg(cls, batch: Any) -> GraphBatch:
        """Convert a `torch_geometric.data.Batch` or `Data`.

        `x` and `edge_attr` keep their device and autograd history. `x` keeps its dtype, and `edge_attr` too if it is floating point.

        Raises:
            UserError: when `batch` or a row's `component` is not sorted, a bond has no reverse or leaves its molecule, `edge_attr` has not
                one row per bond, or `y` or `descriptors` not one per molecule.
        """
        return cls(**batch_of_pyg(batch))

    @property
    def num_graphs(self) -> int:
        """Number of molecules, B."""
        return self.ptr.shape[0] - 1

    @property
    def num_nodes(self) -> int:
        """Number of atoms, N."""
        return self.rowptr.shape[0] - 1

    @property
    def num_edges(self) -> int:
        """Number of directed bonds, E."""
        return self.col.shape[0]

    @cached_property
    def tile_nodes(self) -> int:
        """Number of atoms that a tile has room for."""
        return tile_size(self._largest)

    @cached_property
    def large_molecules(self) -> bool:
        """Whether a molecule or a tile may have more than `tile_nodes` atoms."""
        return self._largest > self.tile_nodes

    @cached_property
    def _largest(self) -> int:
        return int(torch.diff(self.ptr).max()) if self.num_graphs else 0

    @cached_property
    def tile_ptr(self) -> Tensor:
        """First molecule of each tile, int32 [tiles + 1]. A tile has at most `tile_nodes` atoms, or is one larger molecule."""
        return torch.from_numpy(next_fit(self.ptr.cpu().numpy(), self.tile_nodes)).to(self.ptr.device)

    def _edge_index(self) -> Tensor:
        """Source and target of every bond as in PyG, int64 [2, E]. For a padded batch see :class:`molgcn.data.slots.PaddedBatch`.

        Raises:
            UserError: when equal leaves are one row.
        """
        if self.leaves_merged:
            raise UserError(
                "Equal leaves of this batch are one row, which only backend=fused on CUDA with backend.strategy=tile takes. Give "
                "other models the batches of a set that has all atoms."
            )
        if self.counts is not None:
            bonds = torch.arange(self.num_edges, dtype=self.rowptr.dtype, device=self.col.device)
            source = torch.where(bonds < self.rowptr[-1], self.col, self.num_nodes).long()
            return torch.stack([source, torch.searchsorted(self.rowptr, bonds, right=True) - 1])
        nodes = torch.arange(self.num_nodes, device=self.col.device)
        target = torch.repeat_interleave(nodes, torch.diff(self.rowptr), output_size=self.num_edges)
        return torch.stack([self.col.long(), target])

    def _edge_attr(self) -> Tensor | None:
        """Bond features in the order of `edge_index`, float [E, D], or None where the batch has none."""
        return None if self.edge_code is None or self.edge_table is None else self.edge_table.index_select(0, self.edge_code)

    def _batch(self) -> Tensor:
        """Molecule of every atom, int64 [N], and of the padding atom in a padded batch; see :class:`molgcn.data.slots.PaddedBatch`."""
        if self.counts is not None:
            nodes = torch.arange(self.num_nodes + 1, dtype=self.ptr.dtype, device=self.ptr.device)
            return torch.searchsorted(self.ptr, nodes, right=True) - 1
        graphs = torch.arange(self.num_graphs, device=self.ptr.device)
        return torch.repeat_interleave(graphs, torch.diff(self.ptr), output_size=self.num_nodes)

    edge_index = cached_property(_edge_index)
    edge_attr = cached_property(_edge_attr)
    batch = cached_property(_batch)

    def to(self, device: str | torch.device, non_blocking: bool = False) -> GraphBatch:
        """Return the batch on a device, which is the batch itself where it is there already."""
        device = torch.device(device)
        if self.x.device.type == device.type and device.index in (None, self.x.device.index):
            return self
        return self._map(lambda tensor: tensor.to(device, non_blocking=non_blocking))

    def clone(self) -> GraphBatch:
        """Return a copy in its own memory, to keep a batch that is a view of a loader's slot."""
        return self._map(Tensor.clone)

    def double(self) -> GraphBatch:
        """Return the batch with all its floating-point tensors in float64."""
        return self._map(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor)

    def _map(self, function: Callable[[Tensor], Tensor]) -> GraphBatch:
        tensors = [function(tensor) for tensor in (self.x, self.ptr, self.rowptr, self.col, self.targets, self.indices)]
        bonds = ("edge_attr",) if self.edge_code is None else ("edge_code", "edge_table")
        optional = {name: getattr(self, name) for name in (*bonds, *OPTIONAL)}
        moved: dict[str, Any] = {name: function(tensor) for name, tensor in optional.items() if tensor is not None}
        tile_ptr = None if self.planned_tiles() is None else function(self.tile_ptr)
        mapped = GraphBatch(
            *tensors,
            tile_nodes=vars(self).get("tile_nodes"),
            tile_ptr=tile_ptr,
            large_molecules=vars(self).get("large_molecules") if tile_ptr is None else self.large_molecules,
            leaves_merged=self.leaves_merged,
            **moved,
        )
        mapped.counts = None if self.counts is None else function(self.counts)
        return mapped

    def planned_tiles(self) -> Tensor | None:
        """Return `tile_ptr` if the batch has been made with it or has found it before. To find it, the host reads the molecules' sizes."""
        return vars(self).get("tile_ptr")

    def to_pyg(self) -> Any:
        """Convert to a `torch_geometric.data.Batch` with everything that networks read, `targets` as `y`."""
        from torch_geometric.data import Batch

        optional = {name: getattr(self, name) for name in ("edge_attr", *OPTIONAL) if getattr(self, name) is not None}
        ptr = self.ptr.long()
        batch = Batch(x=self.x, edge_index=self.edge_index, y=self.targets, batch=self.batch, ptr=ptr, indices=self.indices, **optional)
        batch._num_graphs = self.num_graphs
        return batch

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(num_graphs={self.num_graphs}, num_nodes={self.num_nodes}, num_edges={self.num_edges}, "
            f"num_features={self.x.shape[1]}, device='{self.x.device}')"
        )
