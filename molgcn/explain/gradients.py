"""Integrated gradients (Sundararajan, Taly and Yan, ICML 2017), by Captum."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from molgcn.errors import UserError
from molgcn.explain.network import ExplainedNetwork, MoleculeGraph

_ATOMS = 20_000  # atoms in the copies of a molecule that are computed at once


def integrated_gradients(network: ExplainedNetwork, graph: MoleculeGraph, steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Compute contributions by integrated gradients.

    The gradient is integrated along the straight line from the baseline to the molecule: all features of atoms and bonds from zero to their
    own, all descriptors from the training part's mean to their own. The contribution of an atom is the sum over its features of mean
    gradient times difference. The contribution of a bond is the sum for its two directions.

    Args:
        network: what is explained.
        graph: the molecule.
        steps: the number of points of the Gauss-Legendre rule.

    Returns:
        The contributions of N atoms, float64 [N], of B bonds, float64 [B] or [0] without features of bonds, and of K descriptors, float64
        [K].

    Raises:
        UserError: when Captum is not installed.
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
    bonds = graph.x.new_zeros(graph.num_bonds)
    if "edge_attr" in each:
        bonds.index_add_(0, graph.bond_of, each["edge_attr"].sum(dim=1))
    descriptors = each.get("descriptors", graph.x.new_zeros(0))
    return each["x"].sum(dim=1).cpu().numpy(), bonds.cpu().numpy(), descriptors.cpu().numpy()


def captum_attr() -> Any:
    """Return the module `captum.attr`.

    Raises:
        UserError: when Captum is not installed.
    """
    try:
        from captum import attr
    except ImportError as error:
        raise UserError(
            "method=integrated_gradients needs the package captum. Run `pip install molgcn[explain]`, or use method=masking."
        ) from error
    return attr
