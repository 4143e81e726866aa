"""The graph convolution on CUDA agrees with the oracle in float64 under emulation."""

import pytest
import torch
from attention_cases import assert_close, random_edges

from molgcn.ops import ConvInputs, gcn_conv_cuda, gcn_conv_reference

NAMES = ("x", "weight", "bias", "edge_weight")


@pytest.mark.parametrize("widths", [(5, 3), (3, 5), None], ids=str)
@pytest.mark.parametrize(("normalize", "add_self_loops"), [(True, True), (True, False), (False, False)])
def test_every_option(emulate, widths, normalize, add_self_loops):
    torch.manual_seed(0)
    for num_nodes, num_edges, weighted, reverse in (
        (20, 60, True, False),
        (20, 60, False, True),
        (5, 0, True, False),
        (30, 900, True, True),
    ):
        x = torch.randn(num_nodes, widths[0] if widths else 4, dtype=torch.float64)
        weight = torch.randn(widths[1], widths[0], dtype=torch.float64) if widths else None
        bias = torch.randn(widths[1] if widths else 4, dtype=torch.float64)
        edge_weight = torch.rand(num_edges, dtype=torch.float64) + 0.1 if weighted else None
        edge_index = random_edges(num_nodes, num_nodes, num_edges)
        inputs = ConvInputs(x, weight, bias, edge_index, edge_weight, normalize, add_self_loops, 2.0, reverse)
        there = [name for name in NAMES if getattr(inputs, name) is not None]
        leaves = [getattr(inputs, name).requires_grad_() for name in there]
        out = gcn_conv_reference(inputs)
        grad = torch.randn_like(out)
        expected = {"out": out.detach(), **dict(zip(there, torch.autograd.grad(out, leaves, grad), strict=True))}
        with torch.no_grad():
            found = dict(zip(NAMES, gcn_conv_cuda.backward(grad, [name in there for name in NAMES], *inputs), strict=True))
            actual = {"out": gcn_conv_cuda.forward(*inputs), **{name: found[name] for name in there}}
        assert_close(actual, expected, 1e-12)


def test_loops_alone_have_weights_without_effect(emulate):
    edge_index, edge_weight = torch.arange(6).repeat(2, 1), torch.rand(6, dtype=torch.float64) + 0.1
    inputs = ConvInputs(torch.randn(6, 3, dtype=torch.float64), torch.randn(2, 3, dtype=torch.float64), None, edge_index, edge_weight)
    gradient = gcn_conv_cuda.backward(torch.randn(6, 2, dtype=torch.float64), [False, False, False, True], *inputs)[3]
    assert gradient.eq(0).all()
