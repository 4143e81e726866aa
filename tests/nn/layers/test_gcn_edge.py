"""GCN with bonds and a loop over bonds agree."""

import pytest
import torch
from edge_layer_cases import GRAPHS, assert_same
from torch import nn

from molgcn.nn.layers.base import LayerOptions
from molgcn.nn.layers.gcn_edge import KIND

SIZES = pytest.mark.parametrize("edge_channels", [7, 3])
SHAPES = pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)


class Loop(nn.Module):
    """The formula, computed bond by bond with the parameters of a layer."""

    def __init__(self, layer):
        super().__init__()
        self.lin, self.lin_edge, self.bias = layer.lin, layer.lin_edge, layer.bias

    def forward(self, x, edge_index, edge_attr):
        out = [self.bias for _ in range(x.shape[0])]
        for source, target, bond in zip(*edge_index.tolist(), edge_attr, strict=True):
            bond = bond if self.lin_edge is None else bond @ self.lin_edge.weight.T + self.lin_edge.bias
            out[target] = out[target] + torch.relu(self.lin.weight @ x[source] + bond)
        return torch.stack(out)


@SIZES
@SHAPES
def test_a_loop_over_bonds_gives_the_same(graph, edge_channels):
    options = LayerOptions(5, 7, edge_channels)
    assert_same(KIND.reference(options).double(), Loop(KIND.reference(options)).double(), graph, 5, edge_channels)


def test_names_of_parameters():
    assert set(KIND.reference(LayerOptions(5, 7, 7)).state_dict()) == {"lin.weight", "bias"}
    assert set(KIND.reference(LayerOptions(5, 7, 3)).state_dict()) == {"lin.weight", "bias", "lin_edge.weight", "lin_edge.bias"}
