"""Converts packed sets from and to PyTorch Geometric's `Data`, and batches from its `Batch`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from molgcn.data.descriptors.attach import with_descriptors
from molgcn.data.encodings import held_encoding
from molgcn.data.merge_leaves import refuse_merged
from molgcn.data.molecule_set import MoleculeSet
from molgcn.data.packed_arrays import batch_arrays
from molgcn.errors import UserError


def pack_pyg(data: Sequence[Any], **metadata: Any) -> MoleculeSet:
    """Pack PyG's `Data`, see :meth:`PackedMolecules.from_pyg`."""
    if len(data) == 0:
        raise UserError("The list of PyG Data is empty. Expected at least one molecule.")
    for number, item in enumerate(data):
        if item.x is None or item.edge_index is None:
            raise UserError(f"Data {number} has no `{'x' if item.x is None else 'edge_index'}`. Expected x [n, F] and edge_index [2, m].")
        if item.x.dim() != 2 or item.x.shape[1] != data[0].x.shape[1]:
            raise UserError(
                f"Data {number} has x of shape {list(item.x.shape)}; expected [atoms, {data[0].x.shape[1]}], as the first molecule has."
            )
    targets = _rows(data, "y", "targets", "a y of shape [1, T], with NaN where missing")
    descriptors = _rows(data, "descriptors", "numbers", "descriptors of shape [1, K]")
    component = None
    if _all_have(data, "component", "a component [n]"):
        component = np.concatenate([item.component.numpy() for item in data]).astype(np.uint8)
    packed = MoleculeSet.from_arrays(
        np.array([item.x.shape[0] for item in data]),
        np.array([item.edge_index.shape[1] for item in data]),
        torch.cat([item.edge_index for item in data], dim=1).numpy(),
        x=torch.cat([item.x for item in data]).float().numpy(),
        edge_attr=_edge_attr(data),
        targets=targets,
        **metadata,
    )
    packed = replace(packed, component=component)
    return packed if descriptors is None else with_descriptors(packed, descriptors)


def _rows(data: Sequence[Any], name: str, of: str, what: str) -> np.ndarray | None:
    """Return an attribute of all molecules as rows [M, columns], or None where no molecule has it."""
    if not _all_have(data, name, what):
        return None
    rows = [rows_of_graphs(getattr(item, name), 1, f"`{name}` of Data {number}") for number, item in enumerate(data)]
    widths = [row.shape[1] for row in rows]
    if len(set(widths)) > 1:
        raise UserError(
            f"The molecules have between {min(widths)} and {max(widths)} {of} in `{name}`. Expected [1, columns], as many columns for all."
        )
    return torch.cat(rows).numpy()


def rows_of_graphs(values: Any, num_graphs: int, called: str) -> Tensor:
    """Return values as one row for each graph, [B, columns]. The values may be a number or several for each graph, one after another."""
    values = torch.as_tensor(values)
    if values.numel() % max(num_graphs, 1) or (values.dim() > 1 and len(values) != num_graphs):
        raise UserError(f"{called} has the shape {list(values.shape)} for {num_graphs} graphs. Give each graph one row, [1, columns].")
    return values.reshape(num_graphs, -1)


def _all_have(data: Sequence[Any], name: str, what: str) -> bool:
    """Return whether the molecules have an attribute. Where only some have it, an error says to give all of them `what`."""
    having = [getattr(item, name, None) is not None for item in data]
    if any(having) and not all(having):
        raise UserError(f"Data {having.index(False)} has no `{name}`, others have. Give every molecule {what}.")
    return all(having)


def _edge_attr(data: Sequence[Any]) -> np.ndarray | None:
    """Return the features of all bonds, float32 [E, D], or None where no molecule has any. An `edge_attr` [m] is one feature."""
    if not _all_have(data, "edge_attr", "an edge_attr of shape [m, D], one row for each column of edge_index"):
        return None
    rows = [item.edge_attr[:, None] if item.edge_attr.dim() == 1 else item.edge_attr for item in data]
    for number, (item, own) in enumerate(zip(data, rows, strict=True)):
        if own.dim() != 2 or own.shape != (item.edge_index.shape[1], rows[0].shape[1]):
            raise UserError(
                f"Data {number} has edge_attr of shape {list(item.edge_attr.shape)}; expected [bonds, features] = "
                f"{[item.edge_index.shape[1], rows[0].shape[-1]]}, one row for each column of edge_index, as wide as the first molecule's."
            )
    return torch.cat(rows).float().numpy()


def unpack_pyg(molecules: MoleculeSet) -> list[Any]:
    """Convert a packed set to a list of PyG's `Data`, see :meth:`PackedMolecules.to_pyg`."""
    from torch_geometric.data import Data

    refuse_merged(molecules)
    others = [array for array in batch_arrays(molecules) if array.name not in ("x", "edge_attr", "edge_code")]
    result = []
    for i in range(len(molecules)):
        nodes = slice(int(molecules.node_ptr[i]), int(molecules.node_ptr[i + 1]))
        bonds = slice(int(molecules.edge_ptr[i]), int(molecules.edge_ptr[i + 1]))
        degree = molecules.degree[nodes].astype(np.int64)
        edge_index = np.stack([molecules.neighbors[bonds].astype(np.int64), np.repeat(np.arange(len(degree)), degree)])
        item = Data(x=torch.tensor(molecules.node_features(nodes), device="cpu"), edge_index=torch.from_numpy(edge_index))
        if molecules.edge_attr is not None:
            item.edge_attr = torch.tensor(molecules.edge_features(bonds), device="cpu")
        places = {"molecule": slice(i, i + 1), "atom": nodes, "bond": bonds}
        for array in others:
            item[array.name] = torch.from_numpy(array.take(places[array.axis]))
        if molecules.targets.shape[1]:
            item.y = torch.tensor(molecules.labels[i : i + 1], device="cpu")
        result.append(item)
    return result


def batch_of_pyg(batch: Any) -> dict[str, Any]:
    """Return the arguments of :class:`molgcn.data.GraphBatch` for a batch of PyG, see :meth:`molgcn.data.GraphBatch.from_pyg`."""
    num_nodes, device = batch.x.shape[0], batch.x.device
    index = getattr(batch, "batch", None)
    index = torch.zeros(num_nodes, dtype=torch.long, device=device) if index is None else index
    num_graphs = int(batch.num_graphs) if hasattr(batch, "num_graphs") else 1
    source, target = batch.edge_index.long()  # target * num_nodes + source does not fit into 32 bits
    if torch.any(index[1:] < index[:-1]):
        raise UserError("`batch` is not sorted. Expected the atoms of one molecule next to each other, as PyG's Batch has them.")
    if torch.any(index[source] != index[target]):
        raise UserError("A bond connects two molecules of the batch. Expected edge_index to stay inside each molecule.")
    incoming, order = torch.sort(target * num_nodes + source, stable=True)
    if not torch.equal(incoming, torch.sort(source * num_nodes + target).values):
        raise UserError("A bond is present in one direction only. Give both, as torch_geometric.utils.to_undirected does.")
    component = getattr(batch, "component", None)
    if component is not None and torch.any((component[1:] < component[:-1]) & (index[1:] == index[:-1])):
        raise UserError("`component` is not sorted within a row. Expected the atoms of a row's first molecule before those of its second.")
    targets, edge_attr, descriptors = (getattr(batch, name, None) for name in ("y", "edge_attr", "descriptors"))
    if edge_attr is not None:
        if len(edge_attr) != len(source):
            raise UserError(f"`edge_attr` has {len(edge_attr)} rows for {len(source)} bonds. Expected one for each column of edge_index.")
        edge_attr = (edge_attr[:, None] if edge_attr.dim() == 1 else edge_attr)[order]
        edge_attr = edge_attr if edge_attr.is_floating_point() else edge_attr.float()
    bond_rw = held_encoding(batch, "bond_rw")
    return {
        "x": batch.x,
        "ptr": _pointers(torch.bincount(index, minlength=num_graphs)),
        "rowptr": _pointers(torch.bincount(target, minlength=num_nodes)),
        "col": (incoming % max(num_nodes, 1)).int(),
        "targets": torch.zeros(num_graphs, 0, device=device) if targets is None else rows_of_graphs(targets, num_graphs, "`y`"),
        "edge_attr": edge_attr,
        "rwse": held_encoding(batch, "rwse"),
        "bond_rw": None if bond_rw is None else bond_rw[order],
        "descriptors": None if descriptors is None else rows_of_graphs(descriptors, num_graphs, "`descriptors`"),
        "component": component,
        "atom_targets": getattr(batch, "atom_targets", None),
        "bond_targets": None if getattr(batch, "bond_targets", None) is None else batch.bond_targets[order],
    }


def _pointers(sizes: Tensor) -> Tensor:
    return torch.cat([sizes.new_zeros(1), sizes.cumsum(0)]).int()
