"""Masking: how the prediction changes when atoms and bonds lose their features one after the other."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from molgcn.explain.network import ExplainedNetwork, MoleculeGraph

_ATOMS = 20_000  # atoms in the copies of a molecule that are computed at once


@torch.no_grad()
def masking(network: ExplainedNetwork, graph: MoleculeGraph, orders: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute contributions as sampled Shapley values (Strumbelj and Kononenko, 2010).

    Atoms, bonds and descriptors are masked one after the other in a random order. The contribution of each is the mean, over the orders, of
    how much its step lowers the prediction. To mask an atom or a bond is to set its features to zero, for a bond those of both directions.
    To mask a descriptor is to set it to the training part's mean. The graph and its encodings by random walks stay as they are. Every order
    leads from the prediction to the baseline, so that contributions add up to the difference of the two for any number of orders. Every
    second order is the one before it reversed.

    Args:
        network: what is explained.
        graph: the molecule.
        orders: the number of orders.

    Returns:
        The contributions of N atoms, float64 [N], of B bonds, float64 [B] or [0] without features of bonds, and of K descriptors, float64
        [K].
    """
    atoms, bonds, rng = graph.x.shape[0], graph.num_bonds, np.random.default_rng(0)
    players = atoms + bonds + graph.num_descriptors
    contributions, order = np.zeros(players), np.arange(players)
    for number in range(orders):
        order = order[::-1] if number % 2 else rng.permutation(players)
        place = np.argsort(order)
        kept = torch.from_numpy(np.arange(players + 1)[:, None] <= place[None]).to(graph.x)  # one row per number of steps done
        values = torch.cat([_values(network, graph, part) for part in kept.split(max(_ATOMS // atoms, 1))]).cpu().numpy()
        contributions[order] -= np.diff(values)
    of_atoms, of_bonds, of_descriptors = np.split(contributions / orders, [atoms, atoms + bonds])
    return of_atoms, of_bonds, of_descriptors


def _values(network: ExplainedNetwork, graph: MoleculeGraph, kept: Tensor) -> Tensor:
    """Return the explained output for K masks.

    Args:
        network: what is explained.
        graph: the molecule.
        kept: [K, N + B + D], 1 for an atom, a bond or a descriptor that keeps its features and 0 for one that is masked.
    """
    atoms, bonds, descriptors = kept.split([graph.x.shape[0], graph.num_bonds, graph.num_descriptors], dim=1)
    masks = {"x": atoms[:, :, None], "descriptors": descriptors}
    if graph.num_bonds:
        masks["edge_attr"] = bonds[:, graph.bond_of, None]
    return network(graph, **{name: base + masks[name] * (own - base) for name, (own, base) in graph.features.items()})
