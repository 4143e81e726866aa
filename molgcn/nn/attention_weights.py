"""What atoms attend to in a network: the weights of its attention layers, and what each atom counts in its pooling."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from molgcn.errors import UserError
from molgcn.nn.forward import molecule_of, states
from molgcn.nn.graph_inputs import GraphInputs, graph_inputs
from molgcn.nn.reference import REDUCTIONS
from molgcn.nn.registry import get_kind, layer_names

if TYPE_CHECKING:
    from molgcn.data.batch import GraphBatch
    from molgcn.nn.molecule_net import MoleculeNet

LayerWeights = tuple[Tensor, Tensor]
"""The edges of a layer, int64 [2, E'], and the weights of its heads, [E', heads]."""


def evaluated(model: MoleculeNet, batch: GraphBatch | Any) -> tuple[MoleculeNet, GraphInputs]:
    """Return a copy of a network on backend=reference in evaluation mode, and what it reads from a batch."""
    network = model.on_backend("reference").eval()
    return network, graph_inputs(network, batch)


def check_attention(model: MoleculeNet) -> None:
    """Raise UserError for a network whose layers have no attention."""
    if not model.kind.attention:
        names = [f"model={name}" for name in layer_names() if get_kind(name).attention]
        raise UserError(f"A network of {model.conv} layers has no attention weights. Networks with attention are {' and '.join(names)}.")


def layer_weights(model: MoleculeNet, graph: GraphInputs) -> list[LayerWeights]:
    """Return the edges and weights of each layer, for a network on backend=reference in evaluation mode.

    Where each molecule of a row has its own encoder, the edges of the first molecules come first.
    """
    check_attention(model)
    parts = []
    for part in _encoded(model, graph):
        called = zip(part.encoder.convs, part.given, strict=True)
        weights: list[LayerWeights] = [conv.attention_weights(*given) for conv, given in called]  # type: ignore[operator]
        parts.append([(part.atoms[edges], of_heads) for edges, of_heads in weights])
    return [
        (torch.cat([edges for edges, _ in layer], dim=1), torch.cat([weights for _, weights in layer]))
        for layer in zip(*parts, strict=True)
    ]


def pool_weights(model: MoleculeNet, graph: GraphInputs) -> Tensor:
    """Return the weight of each atom in pooling by "attention" [N], for a network as :func:`layer_weights` takes; UserError for others."""
    if model.pool != "attention":
        raise UserError(f"Pooling by {model.pool} has no weights of atoms. Networks with pool=attention have them (model.pool=attention).")
    return pool_shares(model, graph)


def pool_shares(model: MoleculeNet, graph: GraphInputs) -> Tensor:
    """Return what each atom counts in the pooled states of its molecule [N], for a network as :func:`layer_weights` takes.

    The shares of a molecule add up to 1. They are the weights of pool="attention". With "max" they are the share of the channels in which
    the atom has the maximum, and otherwise they are equal.
    """
    shares = graph.x.new_zeros(graph.x.shape[0])
    for encoder, part, atoms, _, h in _encoded(model, graph):
        components = 1 if model.encoders else model.num_components
        of, count = molecule_of(part, h, components), graph.num_graphs * components
        if encoder.gate is not None:
            each = REDUCTIONS.weights(h, of, count, encoder.gate)
        elif model.pool == "max":
            each = (h == REDUCTIONS.max(h, of, count).index_select(0, of)).to(h.dtype)
        else:
            each = torch.ones_like(h[:, :1])
        each = each / REDUCTIONS.sum(each, of, count).index_select(0, of)
        shares[atoms] = each.mean(dim=1)
    return shares


class _Part(NamedTuple):
    """An encoder's graph, with the place of its atoms in the whole batch, what each layer is called with, and the atoms' last states."""

    encoder: MoleculeNet
    graph: GraphInputs
    atoms: Tensor
    given: list[tuple[Tensor, ...]]
    h: Tensor


def _encoded(model: MoleculeNet, graph: GraphInputs) -> Iterator[_Part]:
    atoms = torch.arange(graph.x.shape[0], device=graph.x.device)
    for number, encoder in enumerate((model, *model.encoders)):
        part = graph.of_component(number) if model.encoders else graph
        own = atoms[graph.component == number] if model.encoders else atoms
        given: list[tuple[Tensor, ...]] = []
        h = states(encoder, part, given)
        yield _Part(encoder, part, own, given, h)
