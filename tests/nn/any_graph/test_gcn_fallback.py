"""FusedGCNConv leaves changed or observed layers, and what the operator does not support, to PyG's path."""

import pytest
import torch
from compiler import needs_extension
from gcn_cases import STAR, pair
from torch_geometric.nn import GCNConv, Linear

from molgcn.nn import FusedGCNConv
from molgcn.nn.any_graph import base

pytestmark = needs_extension


class Doubled(FusedGCNConv):
    def message(self, x_j, edge_weight):
        return 2 * super().message(x_j, edge_weight)


def hooked(layer):
    layer.register_message_forward_hook(lambda module, inputs, out: 2 * out)
    layer.fuse = False
    return layer


def hooked_linear(layer):
    layer.lin.register_forward_hook(lambda module, inputs, out: 2 * out)
    return layer


class Low(Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def replaced_linear(layer):
    linear = Low(layer.in_channels, layer.out_channels, bias=False)
    linear.weight = layer.lin.weight
    layer.lin = linear
    return layer


@pytest.mark.parametrize("change", [hooked, hooked_linear, replaced_linear])
def test_what_others_change_counts(change):
    plain, x = FusedGCNConv(16, 32, bias=False), torch.randn(4, 16)
    out = plain(x, STAR)
    changed = change(plain)
    assert changed.why_not(x, STAR) is not None
    assert torch.allclose(changed(x, STAR), 2 * out, atol=1e-6)


def test_overridden_messages_count():
    plain, doubled, x = FusedGCNConv(16, 32, bias=False), Doubled(16, 32, bias=False), torch.randn(4, 16)
    doubled.load_state_dict(plain.state_dict())
    assert torch.allclose(doubled(x, STAR), 2 * plain(x, STAR), atol=1e-6)


@pytest.mark.parametrize("aggr", ["mean", "max"])
def test_other_aggregations(aggr):
    fused, pyg = pair(16, 32, aggr=aggr)
    x = torch.randn(4, 16).double()
    assert torch.equal(fused(x, STAR), pyg(x, STAR))


def test_other_dtypes_and_autocast():
    fused, pyg = pair(16, 32)
    fused, pyg, x = fused.float(), pyg.float(), torch.randn(4, 16)
    with torch.autocast("cpu", torch.bfloat16):
        assert fused.why_not(x, STAR) is None
        torch.testing.assert_close(fused(x, STAR), pyg(x, STAR), rtol=1e-6, atol=1e-6)
    assert torch.equal(fused.bfloat16()(x.bfloat16(), STAR), pyg.bfloat16()(x.bfloat16(), STAR))


@pytest.mark.parametrize("kind", ["ours", "a subclass"])
def test_explanations_see_the_edges(kind):
    from torch_geometric.explain import Explainer, GNNExplainer

    GCNConv(5, 2)  # from then on PyG has a specialised form of its class, which ours must not take over

    class Mine(FusedGCNConv):
        pass

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = layer(5, 2)

        def forward(self, x, edge_index):
            return self.conv(x, edge_index)

    layer = {"ours": FusedGCNConv, "a subclass": Mine}[kind]
    explainer = Explainer(
        Net(),
        GNNExplainer(epochs=5),
        explanation_type="model",
        edge_mask_type="object",
        model_config={"mode": "regression", "task_level": "node", "return_type": "raw"},
    )
    explanation = explainer(torch.randn(4, 5), STAR)
    assert explanation.edge_mask.abs().sum() > 0


def test_where_there_is_no_operator(monkeypatch):
    fused, pyg = pair(16, 32)
    x = torch.randn(4, 16).double()
    monkeypatch.setattr(base, "HAS_CPU_EXTENSION", False)
    assert fused.why_not(x, STAR) is not None
    assert torch.equal(fused(x, STAR), pyg(x, STAR))
