"""The methods that compute contributions: integrated gradients, by Captum, and masking.

Each returns the contributions of the N atoms of a row, float64 [N], of its B bonds, float64 [B] or [0] without features of bonds, and of K
descriptors, float64 [K].
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from molgcn.errors import UserError
from molgcn.explain.network import ExplainedNetwork, MoleculeGraph

Found = tuple[np.ndarray, np.ndarray, np.ndarray]
_ATOMS = 20_000  # atoms in the copies of a molecule that are computed at once


def integrated_gradients(network: ExplainedNetwork, graph: MoleculeGraph, steps: int) -> Found:
    """Compute contributions by integrated gradients (Sundararajan, Taly and Yan, ICML 2017).

    The gradient is integrated along the straight line from the baseline to the molecule: all features of atoms and bonds from zero to their
    own, all descriptors from the training part's mean to their own. The contribution of an atom is the sum over its features of mean
    gradient times difference. The contribution of a bond is the sum for its two directions. `steps` is the number of points of the
    Gauss-Legendre rule.
    """
    features = graph.features
    with torch.enable_grad():
        found: tuple[Tensor, ...] = (
            captum_attr()
            .IntegratedGradients(lambda *values: network(graph, **dict(zip(features, values, strict=True))))
            .attribute(
                *(tuple(values) for values in zip(*features.values(), strict=True)),
                n_steps=steps,
                method="gausslegendre",
                internal_batch_size=max(_ATOMS // graph.x.shape[0], 1),
            )
        )
    each = {name: one[0].detach() for name, one in zip(features, found, strict=True)}
    bonds = graph.x.new_zeros(graph.num_bonds_read)
    if "edge_attr" in each:
        bonds.index_add_(0, graph.bond_of, each["edge_attr"].sum(dim=1))
    descriptors = each.get("descriptors", graph.x.new_zeros(0))
    return each["x"].sum(dim=1).cpu().numpy(), bonds.cpu().numpy(), descriptors.cpu().numpy()


def captum_attr() -> Any:
    """Return the module `captum.attr`, or raise a UserError where Captum is not installed."""
    try:
        from captum import attr
    except ImportError as error:
        raise UserError(
            "method=integrated_gradients needs the package captum. Run `pip install molgcn[explain]`, or use method=masking."
        ) from error
    return attr


@torch.no_grad()
def masking(network: ExplainedNetwork, graph: MoleculeGraph, orders: int) -> Found:
    """Compute contributions as sampled Shapley values (Strumbelj and Kononenko, 2010) over a number of orders.

    Atoms, bonds and descriptors are masked one after the other in a random order. The contribution of each is the mean, over the orders, of
    how much its step lowers the prediction. To mask an atom or a bond is to set its features to zero, for a bond those of both directions.
    To mask a descriptor is to set it to the training part's mean. The graph and its encodings by random walks stay as they are. Every order
    leads from the prediction to the baseline, so that contributions add up to the difference of the two for any number of orders. Every
    second order is the one before it reversed.
    """
    atoms, bonds, rng = graph.x.shape[0], graph.num_bonds_read, np.random.default_rng(0)
    players = atoms + bonds + graph.num_descriptors
    contributions, order = np.zeros(players), np.arange(players)

    def values(kept: Tensor) -> Tensor:
        """Return the explained output for K masks [K, players], 1 for what keeps its features and 0 for what is masked."""
        of_atoms, of_bonds, of_descriptors = kept.split([atoms, bonds, graph.num_descriptors], dim=1)
        masks = {"x": of_atoms[:, :, None], "descriptors": of_descriptors}
        if bonds:
            masks["edge_attr"] = of_bonds[:, graph.bond_of, None]
        return network(graph, **{name: base + masks[name] * (own - base) for name, (own, base) in graph.features.items()})

    for number in range(orders):
        order = order[::-1] if number % 2 else rng.permutation(players)
        place = np.argsort(order)
        kept = torch.from_numpy(np.arange(players + 1)[:, None] <= place[None]).to(graph.x)  # one row per number of steps done
        steps = torch.cat([values(part) for part in kept.split(max(_ATOMS // atoms, 1))]).cpu().numpy()
        contributions[order] -= np.diff(steps)
    of_atoms, of_bonds, of_descriptors = np.split(contributions / orders, [atoms, atoms + bonds])
    return of_atoms, of_bonds, of_descriptors
