"""Networks and batches that the tests of `molgcn::layer_network` share."""

from collections.abc import Iterable
from typing import Any

import pytest
import torch
from network_cases import OPTIONS, batch_of, network
from torch import nn

from molgcn.data import GraphBatch
from molgcn.nn import MoleculeNet, fused_call
from molgcn.ops.layer_network.call import LayerNetworkCall

FUSED = ("gcn", "gin", "gine", "gcn_edge", "sage", "gated_gcn", "dmpnn", "gat", "gatv2")  # the layers of this project that say their steps
_LAYERS = {
    "gin": {"train_eps": True, "mlp_norm": True, "eps": 0.3, "mlp_activation": "silu"},
    "gine": {"train_eps": True, "eps": -0.2, "mlp_activation": "gelu", "activation": "tanh"},
    "gcn": {"add_self_loops": False},
    "sage": {"aggr": "mean", "project": True, "normalize": True},
    "sage sum": {"aggr": "sum", "root_weight": False},
    "sage max": {"aggr": "max", "project": True},
    "gated_gcn": {"activation": "silu", "embed_bonds": True, "residual": True},
    "dmpnn": {"message_bias": True, "embed_bonds": True, "embed": True},
    "gat": {"heads": 4, "negative_slope": 0.1, "linear_residual": True, "embed_bonds": True, "embed": True},
    "gat mean": {"heads": 3, "concat": False, "bias": False, "activation": "elu"},
    "gatv2": {"heads": 3, "share_weights": True, "linear_residual": True, "activation": "elu"},
    "gatv2 mean": {"heads": 2, "concat": False, "negative_slope": 0.3, "embed_bonds": True, "embed": True},
}
_NETWORKS = [
    *OPTIONS.items(),
    ("every layer", {"readout": "all", "norm": "batch", "residual": True, "feed_forward": True}),
    ("every layer, max", {"readout": "all", "pool": "max", "embed": True}),
    ("silu", {"activation": "silu", "norm": "layer", "residual": True}),
    ("max, last", {"pool": "max", "norm": "batch", "residual": True, "last_activation": False, "embed": True}),
]
CASES = {f"{conv} {name}": (conv, options) for conv in FUSED for name, options in _NETWORKS}
CASES |= {f"{name} settings": (name.split()[0], settings) for name, settings in _LAYERS.items()}
CASES |= {f"{name} settings and norm": (name.split()[0], {**settings, "norm": "batch"}) for name, settings in _LAYERS.items()}


def few_fast(cases: Iterable[str]) -> list[Any]:
    """Return names of cases; fast tests have all networks of one layer, two networks of every layer, and all settings of layers."""
    fast = ("gnn+", "every layer, max", "settings", "settings and norm")
    return [case if case.startswith("gine ") or case.endswith(fast) else pytest.param(case, marks=pytest.mark.slow) for case in cases]


def pooling_network(case: str, **options) -> MoleculeNet:
    """Return a network in float64 whose predictions are the pooled states, with biases and norms that are not 0 and 1."""
    conv, own = CASES[case]
    model = network(conv, {**own, **options, "head_layers": 0, "head_channels": None})
    model.head, model.descriptors, model.descriptor_channels = nn.Identity(), None, 0
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def call_of(model: MoleculeNet, batch: str | GraphBatch, **options) -> LayerNetworkCall:
    """Return the operator's call for a model and one of the shared batches, with the options of the call replaced."""
    batch = GraphBatch.from_pyg(batch_of(batch)) if isinstance(batch, str) else batch
    call = fused_call.layer_call(model, batch)
    return call._replace(options=call.options._replace(**options))
