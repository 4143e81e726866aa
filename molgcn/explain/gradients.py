"""Integrated gradients (Sundararajan, Taly and Yan, ICML 2017), by Captum."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from molgcn.errors import UserError
from molgcn.explain.network import ExplainedNetwork, MoleculeGraph

_ATOMS = 20_000  # atoms in the copies of a molecule that are computed at once


def integrated_gradients(network: ExplainedNetwork, graph: MoleculeGraph, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Compute contributions by integrated gradients.

    The gradient is integrated along the straight line from all features zero to the features of the molecule. The contribution of an atom
    is the sum over its features of feature times mean gradient. The contribution of a bond is the sum for its two directions.

    Args:
        network: what is explained.
        graph: the molecule.
        steps: the number of points of the Gauss-Legendre rule.

    Returns:
        The contributions of N atoms, float64 [N], and of B bonds, float64 [B] or [0] without features of bonds.

    Raises:
        UserError: when Captum is not installed.
    """
    inputs = tuple(one[None] for one in (graph.x, graph.edge_attr) if one is not None)
    with torch.enable_grad():
        found: tuple[Tensor, ...] = (
            captum_attr()
            .IntegratedGradients(lambda *features: network(graph, *features))
            .attribute(inputs, n_steps=steps, method="gausslegendre", internal_batch_size=max(_ATOMS // graph.x.shape[0], 1))
        )
    atoms, *bonds = (one[0].detach().sum(dim=1) for one in found)
    of_bonds = [torch.zeros(graph.num_bonds, dtype=one.dtype, device=one.device).index_add(0, graph.bond_of, one) for one in bonds]
    return atoms.cpu().numpy(), of_bonds[0].cpu().numpy() if of_bonds else np.zeros(0)


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
