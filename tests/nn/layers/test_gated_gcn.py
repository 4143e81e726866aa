"""The gated graph convolution and a loop over atoms agree."""

import pytest
import torch
from edge_layer_cases import GRAPHS, assert_same
from torch import nn

from molgcn.nn.layers.base import LayerOptions
from molgcn.nn.layers.gated_gcn import KIND

OPTIONS = LayerOptions(5, 7, 3)
SHAPES = pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)


class Loop(nn.Module):
    """The formula as Dwivedi et al. print it, computed atom by atom."""

    def __init__(self, layer):
        super().__init__()
        self.A, self.B, self.C, self.D, self.E = layer.A, layer.B, layer.C, layer.D, layer.E

    def forward(self, x, edge_index, edge_attr):
        ends = edge_index.T.tolist()
        bonds = [self.D(x[i]) + self.E(x[j]) + self.C(edge) for (j, i), edge in zip(ends, edge_attr, strict=True)]
        out = []
        for atom in range(x.shape[0]):
            incoming = [(j, torch.sigmoid(bond)) for (j, i), bond in zip(ends, bonds, strict=True) if i == atom]
            total = sum(gate for _, gate in incoming)
            out.append(self.A(x[atom]) + sum(gate / (total + 1e-6) * self.B(x[j]) for j, gate in incoming))
        return torch.stack(out), torch.stack(bonds) if bonds else x.new_empty(0, 7)


@SHAPES
def test_a_loop_over_atoms_gives_the_same(graph):
    assert_same(KIND.reference(OPTIONS).double(), Loop(KIND.reference(OPTIONS)).double(), graph, 5, 3)


def test_five_linear_maps_with_bias():
    parameters = dict(KIND.reference(LayerOptions(8, 8, 8)).named_parameters())
    assert {name: tuple(parameter.shape) for name, parameter in parameters.items()} == {
        f"{name}.{part}": shape for name in "ABCDE" for part, shape in (("weight", (8, 8)), ("bias", (8,)))
    }
