"""backend=fused computes every network of the registry, with every option and every two options that go together."""

import inspect
from itertools import combinations

import pytest
import torch
from network_cases import NUM_EDGE_FEATURES, NUM_FEATURES, STEPS, joined
from test_molecule_net import EXACT, outcome
from torch import nn

from molgcn.data import GraphBatch
from molgcn.errors import UserError
from molgcn.nn import MoleculeNet
from molgcn.nn.activations import ACTIVATIONS
from molgcn.nn.init import INITIALISERS
from molgcn.nn.norms import NORMS
from molgcn.nn.options import READOUTS
from molgcn.nn.pooling import POOLS
from molgcn.nn.registry import get_kind, layer_names
from molgcn.ops import HAS_CPU_EXTENSION

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.skipif(not HAS_CPU_EXTENSION, reason="needs the C++ extension")]
OPTIONS = [
    *({"norm": norm} for norm in NORMS),
    *({"activation": activation} for activation in ACTIVATIONS),
    *({"pool": pool} for pool in POOLS),
    *({"readout": readout} for readout in READOUTS),
    *({"init": init} for init in INITIALISERS),
    {"residual": True},
    {"feed_forward": True},
    {"feed_forward": True, "feed_forward_norm": None},
    {"feed_forward": True, "feed_forward_norm": "layer"},
    {"last_activation": False},
    {"embed": True},
    {"embed_bonds": True},
    {"rwse": STEPS, "rwse_dim": 2},
    {"bond_rw": STEPS, "embed_bonds": True},
    {"head_layers": 2},
    {"head_channels": [5]},
    {"descriptor_channels": 2},
    {"descriptor_channels": 2, "descriptor_limit": 0.5},
    {"scaled_channels": 2},
    {"scaled_edge_channels": 2},
    {"recompute": True},
    {"num_components": 2},
    {"num_components": 2, "shared_encoder": False},
    {"atom_outputs": [0], "bond_outputs": [1]},
]
OTHER = {"aggr": ["sum", "max"], "mlp_activation": ACTIVATIONS, "heads": [3]}  # values of settings that follow from no default
NO_OPTIONS = {"in_channels", "hidden_channels", "num_layers", "out_channels", "conv", "edge_channels", "backend", "settings"}
ELSEWHERE = {"dropout", "strategy"}  # random, and a choice of kernels: tests of their own


def options_of(conv):
    """Return one value or more of each option of a network, and of each of the layer's own settings another value than its default."""
    settings = get_kind(conv).own_settings
    for name, default in settings.items():
        others = OTHER[name] if name in OTHER else [not default] if isinstance(default, bool) else [default + 0.25]
        yield from ({name: value} for value in others)
    if "concat" in settings:
        yield {"heads": 3, "concat": False}
    yield from OPTIONS


def test_no_option_is_missing():
    named = set().union(*OPTIONS) | NO_OPTIONS | ELSEWHERE
    assert named == set(inspect.signature(MoleculeNet).parameters)


def networks(conv, count, width=12):
    """Yield the networks in plain PyTorch with `count` options beside the defaults, if these go together."""
    kind = get_kind(conv)
    for edge_channels in {"never": [None], "optional": [None, NUM_EDGE_FEATURES], "always": [NUM_EDGE_FEATURES]}[kind.bonds]:
        for chosen in combinations(options_of(conv), count):
            options = {name: value for one in chosen for name, value in one.items()}
            if sum(map(len, chosen)) > len(options):
                continue  # two values of one option
            recompute = options.pop("recompute", False)
            torch.manual_seed(0)
            try:
                model = MoleculeNet(NUM_FEATURES, width, 2, 2, conv=conv, edge_channels=edge_channels, backend="reference", **options)
            except UserError:
                continue
            for bias in (one for name, one in model.named_parameters() if name.endswith("bias")):
                nn.init.normal_(bias, std=0.1)  # where a maximum is 0, PyTorch's scatter_reduce counts the zeros it starts from as well
            yield model.double().eval(), recompute


@pytest.mark.parametrize(
    ("count", "width"), [(1, 12), pytest.param(0, 1100, marks=pytest.mark.slow), pytest.param(2, 12, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("conv", layer_names())
def test_fused_computes_it(conv, count, width):
    batch, seen = GraphBatch.from_pyg(joined()), 0
    batch.descriptors = torch.linspace(-1, 1, 6, dtype=torch.float64).view(3, 2)
    for model, recompute in networks(conv, count, width):
        fused = model.on_backend("fused", recompute=recompute)
        torch.testing.assert_close(outcome(fused, batch.clone()), outcome(model, batch.clone()), **EXACT)
        seen += 1
    assert seen > 15 if count else seen
