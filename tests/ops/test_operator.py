"""Eager calls of an operator go past PyTorch's dispatcher, but whatever has to see a call does see it."""

import gc
import weakref

import pytest
import torch
from attention_cases import gradient_for
from attention_cases import random_inputs as attention_inputs
from compiler import needs_extension
from emulated import Compiler
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from molgcn.cuda_runtime.launch import launching_by
from molgcn.ops import ConvInputs, GineInputs, aggregate, aggregate_cuda, attention_cuda, gcn_conv, gcn_conv_cuda, gine_aggregate, gine_cuda
from molgcn.ops.aggregate import AggregateInputs

DEVICES = [pytest.param("cpu", marks=needs_extension), pytest.param("cuda", marks=pytest.mark.gpu)]
on_every_device = pytest.mark.parametrize("device", DEVICES)


class Names(TorchDispatchMode):
    """Collects the names of the operators that PyTorch dispatches."""

    def __init__(self):
        super().__init__()
        self.seen = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.seen.add(function.name())
        return function(*args, **(kwargs or {}))


class Marked(torch.Tensor):
    """A subclass that behaves as a tensor."""


def graph(device):
    torch.manual_seed(0)
    return torch.randn(6, 4, device=device, requires_grad=True), torch.randint(0, 6, (2, 20)).to(device)


@on_every_device
def test_a_dispatch_mode_sees_both_passes(device):
    x, edge_index = graph(device)
    with Names() as names:
        out = gcn_conv(ConvInputs(x, None, None, edge_index, None))
        (seen,) = torch.autograd.grad(out.sum(), x)
    assert {"molgcn::gcn_conv", "molgcn::gcn_conv_backward"} <= names.seen
    (eager,) = torch.autograd.grad(gcn_conv(ConvInputs(x, None, None, edge_index, None)).sum(), x)
    assert torch.equal(seen, eager)


@on_every_device
def test_both_ways_give_the_same_bits(device):
    x, edge_index = graph(device)
    results = []
    for call in (aggregate, torch.compile(aggregate, backend="aot_eager", fullgraph=True)):
        out = call(x, edge_index, reduce="mean")
        results.append((out, *torch.autograd.grad(out, x, torch.ones_like(out))))
    assert all(map(torch.equal, *results))


@on_every_device
def test_subclasses_of_tensors_and_modes_of_functions(device):
    x, edge_index = graph(device)
    edges = torch.randn(20, 4, device=device)
    expected = gine_aggregate(GineInputs(x, edges, edge_index, 6))
    assert torch.equal(gine_aggregate(GineInputs(x.as_subclass(Marked), edges, edge_index, 6)), expected)

    class Nothing(TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    with Nothing(), torch.device(device):
        assert torch.equal(gine_aggregate(GineInputs(x, edges, edge_index, 6)), expected)


@on_every_device
def test_a_gradient_that_is_not_asked_for_is_not_made(device):
    x, edge_index = graph(device)
    weight = torch.rand(20, device=device, requires_grad=True)
    out = aggregate(x.detach(), edge_index, weight)
    assert torch.autograd.grad(out.sum(), weight)[0].shape == (20,)
    with torch.no_grad():
        assert not aggregate(x, edge_index, weight).requires_grad


@on_every_device
def test_a_graph_written_to_before_backward_is_refused(device):
    x, edge_index = graph(device)
    out = aggregate(x, edge_index)
    edge_index[0, 0] = 3
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


@torch.no_grad()
def test_what_kernels_prepare_does_not_keep_tensors_alive():
    x, edge_index = graph("cpu")
    edges, weight, grad = torch.randn(20, 4), torch.rand(20), torch.randn(6, 4)
    attended = attention_inputs(num_src=6, num_dst=6, num_edges=20, num_loops=6)
    with launching_by(Compiler("sm_90", only="nothing")):  # launches nothing
        aggregate_cuda.backward(grad, None, [True, True, True], *AggregateInputs(x, edge_index, weight[:, None], torch.ones(1), 6))
        gcn_conv_cuda.backward(grad, [True, False, False, False], *ConvInputs(x, None, None, edge_index, None))
        gine_cuda.backward(grad, *GineInputs(x, edges, edge_index, 6))
        out, softmax = attention_cuda.forward(*attended)
        attention_cuda.backward(gradient_for(attended), out, softmax, *attended)
    alive = [weakref.ref(tensor) for tensor in (x, edge_index, edges, weight, grad, attended.edge_index, attended.source, out)]
    del x, edge_index, edges, weight, grad, attended, out, softmax
    gc.collect()
    assert [one() for one in alive] == [None] * len(alive)
