"""The forward pass that backends pyg and reference share. They differ in the layers' modules and in the reductions of the pooling."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from molgcn.errors import UserError
from molgcn.nn.graph_inputs import GraphInputs
from molgcn.nn.norms import normalised
from molgcn.nn.padding import without_padding
from molgcn.nn.pooling import Reductions

if TYPE_CHECKING:
    from molgcn.nn.molecule_net import MoleculeNet


def predictions(model: MoleculeNet, graph: GraphInputs, reductions: Reductions) -> Tensor:
    """Return the predictions [B, T]: encoders, all layers, the pooling and the head, or those of :func:`rows_of_levels`."""
    if model.outputs:
        return rows_of_levels(model, graph, states(model, graph), reductions)
    if model.encoders:
        parts = [graph.of_component(number) for number in range(model.num_components)]
        pooled = torch.cat([_pooled(one, part, reductions) for one, part in zip((model, *model.encoders), parts, strict=True)], dim=1)
    else:
        pooled = _pooled(model, graph, reductions, model.num_components)
    return model.head(model.with_descriptors(pooled, graph.descriptors))


def _pooled(model: MoleculeNet, graph: GraphInputs, reductions: Reductions, components: int = 1) -> Tensor:
    """Return the states of the molecules [B, components * H]; the states of a row's components stand side by side."""
    return _pooled_states(model, graph, states(model, graph), reductions, components)


def rows_of_levels(model: MoleculeNet, graph: GraphInputs, h: Tensor, reductions: Reductions) -> Tensor:
    """Return the outputs of molecules, atoms and bonds, those that the network has, one below another: [B + N + E, T].

    `h` are the states of the atoms [N, H], and of the padding's atom in a padded batch.
    """
    pooled = model.with_descriptors(_pooled_states(model, graph, h, reductions), graph.descriptors) if model.molecule_outputs else None
    count = graph.num_graphs if graph.num_atoms is None else graph.num_graphs - 1
    blocks = [(h.new_zeros(count, 0) if pooled is None else model.head(pooled), model.molecule_outputs)]
    if model.atom_head is not None:
        blocks.append((model.atom_head(h if graph.num_atoms is None else h[:-1]), model.outputs["atom"]))
    if model.bond_head is not None:
        blocks.append((model.bond_head(bond_inputs(model, h, graph)), model.outputs["bond"]))
    rows = []
    for values, places in blocks:
        full = values.new_zeros(len(values), model.out_channels)
        for column, place in enumerate(places):
            full[:, place] = values[:, column]
        rows.append(full)
    return torch.cat(rows)


def bond_inputs(model: MoleculeNet, h: Tensor, graph: GraphInputs) -> Tensor:
    r"""Return what the bonds' head takes of each directed bond [E, 2 H + D], the same for both directions of a bond.

    For a bond between atoms with the states :math:`h_v` and :math:`h_w` and with features :math:`e` it is
    :math:`[h_v + h_w, |h_v - h_w|, e]`.
    """
    source, target = (h.index_select(0, ends) for ends in graph.edge_index)
    parts = [source + target, (source - target).abs()]
    if model.edge_channels is not None:
        features = _given(graph.edge_attr, "edge_attr", h)
        parts.append(features if model.bond_scale is None else model.bond_scale(features))
    return torch.cat(parts, dim=1)


def states(model: MoleculeNet, graph: GraphInputs, seen: list[tuple[Tensor, ...]] | None = None) -> Tensor:
    """Return the states of the atoms [N, H] after the last layer, or of all layers side by side where `readout` is "all".

    What each layer is called with is appended to the list `seen`, if there is one.
    """
    h, bonds = atom_states(model, graph.x, graph.rwse, graph.num_atoms), bond_states(model, graph.edge_attr, graph.bond_rw, graph.x)
    found = []
    for index, conv in enumerate(model.convs):
        norm, activated, _ = model.layer_options(index)
        padding = {"count": graph.num_atoms} if model.kind.counts_atoms and graph.num_atoms is not None else {}
        given = (h, graph.edge_index) if bonds is None else (h, graph.edge_index, bonds)
        if seen is not None:
            seen.append(given)
        out = conv(*given, **padding)
        if model.kind.edge_states:
            assert bonds is not None
            out, new_bonds = out
            if index + 1 < len(model.convs):  # the last layer's bond states are never read
                edge_norm = None if norm is None else model.edge_norms[index]
                bonds = _epilogue(model, without_padding(new_bonds, graph.num_bonds), bonds, edge_norm, activated, graph.num_bonds)
        h = _epilogue(model, without_padding(out, graph.num_atoms), h, norm, activated, graph.num_atoms)
        if model.feed_forward:
            h = model.feed_forwards[index](h, model.dropout, graph.num_atoms)
        found.append(h)
    return torch.cat(found, dim=1) if model.readout == "all" else h


def _pooled_states(model: MoleculeNet, graph: GraphInputs, h: Tensor, reductions: Reductions, components: int = 1) -> Tensor:
    """Pool the states of the atoms [N, H] into those of the molecules [B, components * H]."""
    pooled = reductions.pool(model.pool, h, molecule_of(graph, h, components), graph.num_graphs * components, model.gate)
    pooled = pooled.reshape(graph.num_graphs, -1) if components > 1 else pooled
    return pooled if graph.num_atoms is None else pooled[:-1]  # drop the molecule of the padding


def molecule_of(graph: GraphInputs, h: Tensor, components: int = 1) -> Tensor:
    """Return the molecule of each atom with a state `h` [N, H], int64 [N]; the components of a row are molecules that follow each other."""
    batch = torch.zeros_like(h[:, 0], dtype=torch.int64) if graph.batch is None else graph.batch
    return batch * components + _given(graph.component, "component", batch) if components > 1 else batch


def atom_states(model: MoleculeNet, x: Tensor, rwse: Tensor | None, count: Tensor | None) -> Tensor:
    """Return the atoms' states before the first layer: the features, embedded if the network embeds them, concatenated to the encodings.

    Own features, the last columns, are standardised first. `count` is the number of real atoms of a padded batch, an integer [].
    """
    x = x if model.atom_scale is None else model.atom_scale(x)
    h = x if model.embed is None else model.embed(x)
    if model.rwse_encoder is None:
        return h
    return torch.cat([h, model.rwse_encoder(_given(rwse, "rwse", x), count)], dim=1)


def bond_states(model: MoleculeNet, edge_attr: Tensor | None, bond_rw: Tensor | None, like: Tensor) -> Tensor | None:
    """Return the bonds' states before the first layer: the features, embedded if the network embeds them, plus the encodings.

    The states have the dtype of `like`. They are None where the network does not see bonds.
    """
    bonds = None
    if model.edge_channels is not None:
        features = _given(edge_attr, "edge_attr", like)
        features = features if model.bond_scale is None else model.bond_scale(features)
        bonds = features if model.bond_embed is None else model.bond_embed(features)
    if model.bond_rw_encoder is not None:
        encoded = model.bond_rw_encoder(_given(bond_rw, "bond_rw", like))
        bonds = encoded if bonds is None else bonds + encoded
    return bonds


def _given(tensor: Tensor | None, name: str, x: Tensor) -> Tensor:
    """Return a tensor that a batch must have in the dtype of `x`."""
    if tensor is None:
        raise UserError(
            f"The network reads `{name}`, which the batch does not have. Give it batches that have it, or build a network without it."
        )
    return tensor.to(x.dtype)


def _epilogue(model: MoleculeNet, out: Tensor, before: Tensor, norm: nn.Module | None, activated: bool, count: Tensor | None) -> Tensor:
    """Return a layer's output [R, H] after norm, activation, dropout and, where the network has it, residual connection."""
    if norm is not None:
        out = normalised(norm, out, count)
    if activated:
        out = F.dropout(model.activate(out), model.dropout, model.training)
    return out + before if model.residual and before.shape[1] == out.shape[1] else out
