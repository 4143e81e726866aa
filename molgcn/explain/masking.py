"""Masking: how the prediction changes when atoms and bonds lose their features one after the other."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from molgcn.explain.network import ExplainedNetwork, MoleculeGraph

_ATOMS = 20_000  # of the copies of a molecule that are computed at once


@torch.no_grad()
def masking(network: ExplainedNetwork, graph: MoleculeGraph, orders: int) -> tuple[np.ndarray, np.ndarray]:
    """Mask one atom or bond after the other in random orders, and average what each step takes away from the prediction.

    To mask is to set a row of features to zero, of a bond those of both directions; the graph stays as it is, and so do encodings by random
    walks. These are sampled Shapley values (Strumbelj and Kononenko, 2010): in every order the steps lead from the prediction to the
    baseline, so that contributions add up to their difference whatever the number of orders. Every second order is the one before reversed.

    Args:
        network: what is explained.
        graph: the molecule.
        orders: how many orders.

    Returns:
        Contributions of N atoms and of B bonds, float64.
    """
    atoms, rng = graph.x.shape[0], np.random.default_rng(0)
    players = atoms + graph.num_bonds
    contributions, order = np.zeros(players), np.arange(players)
    for number in range(orders):
        order = order[::-1] if number % 2 else rng.permutation(players)
        place = np.argsort(order)
        kept = torch.from_numpy(np.arange(players + 1)[:, None] <= place[None]).to(graph.x)  # after so many steps
        values = torch.cat([_values(network, graph, part) for part in kept.split(max(_ATOMS // atoms, 1))]).cpu().numpy()
        contributions[order] -= np.diff(values)
    contributions /= orders
    return contributions[:atoms], contributions[atoms:]


def _values(network: ExplainedNetwork, graph: MoleculeGraph, kept: Tensor) -> Tensor:
    """Return what is explained where [K, N + B] is 1 for what keeps its features and 0 for what is masked."""
    atoms = graph.x.shape[0]
    x = graph.x * kept[:, :atoms, None]
    if graph.edge_attr is None:
        return network(graph, x)
    return network(graph, x, graph.edge_attr * kept[:, atoms:][:, graph.bond_of, None])
