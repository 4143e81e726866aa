"""Shares of attention: how much of what the layers and the pooling of a network attend to comes from each atom, and along each bond."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from molgcn.explain.network import MoleculeGraph
from molgcn.nn import MoleculeNet
from molgcn.nn.attention_weights import layer_weights, pool_shares

if TYPE_CHECKING:
    from molgcn.explain.contributions import Found


@torch.no_grad()
def rollout(model: MoleculeNet, graph: MoleculeGraph) -> Found:
    """Compute shares of attention by attention rollout (Abnar and Zuidema, ACL 2020).

    What each atom counts in the pooling is handed down from the last layer to the first. In a layer an atom passes its share on to its
    neighbours and itself by its attention weights, averaged over the heads. Where the layer's input is added to its output, the atom keeps
    half of its share. An atom's result is what arrives at it: those of a molecule add up to 1. A bond's is what passes along it in both
    directions, averaged over the layers. With `readout` "all" each layer gets an equal part of what the pooling counts.

    Raises:
        UserError: for a network whose layers have no attention.
    """
    layers, pooled = layer_weights(model, graph), pool_shares(model, graph)
    share, passed = torch.zeros_like(pooled), graph.x.new_zeros(len(pooled), len(pooled))
    for index, (edges, weights) in reversed(list(enumerate(layers))):
        if model.readout == "all":
            share = share + pooled / len(layers)
        elif index == len(layers) - 1:
            share = pooled
        keeps = model.layer_options(index)[2] or model.settings.get("linear_residual", False)
        matrix = torch.zeros_like(passed).index_put((edges[1], edges[0]), weights.mean(dim=1), accumulate=True)
        moved = (0.5 if keeps else 1.0) * share[:, None] * matrix
        share = share - moved.sum(dim=1) + moved.sum(dim=0)
        passed += moved / len(layers)
    one, other = torch.from_numpy(graph.ends.T).to(passed.device)
    bonds = passed[one, other] + passed[other, one]
    return share.cpu().numpy(), bonds.cpu().numpy(), np.empty(0)
