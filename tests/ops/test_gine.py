"""GINE's sums agree with plain PyTorch on every device, and its kernels under emulation."""

import pytest
import torch
from architectures import ARCHITECTURES, EVERY_ARCHITECTURE
from attention_cases import random_edges
from compiler import needs_extension
from emulated import Compiler, gpu_memory

from molgcn.cuda_runtime.launch import launching_by
from molgcn.ops import GineInputs, gine_aggregate, gine_cuda
from molgcn.ops.gine import gine_aggregate_reference

DEVICES = [pytest.param("cpu", marks=needs_extension), pytest.param("cuda", marks=pytest.mark.gpu)]
CASES = [
    {},
    {"num_edges": 0},
    {"columns": 64, "num_edges": 1500},  # long rows
    {"columns": 300, "num_src": 30, "num_dst": 50},
    {"columns": 6, "reverse": True, "num_src": 50, "num_dst": 30},
]


def random_inputs(num_src=40, num_dst=40, num_edges=200, columns=7, reverse=False, dtype=torch.float64, device="cpu"):
    torch.manual_seed(0)
    edge_index = random_edges(num_src, num_dst, num_edges)
    x, edges = (torch.randn(count, columns, dtype=dtype, device=device, requires_grad=True) for count in (num_src, num_edges))
    return GineInputs(x, edges, (edge_index.flip(0) if reverse else edge_index).to(device), num_dst, reverse)


def gradient_for(inputs):
    shape = (inputs.num_targets, inputs.x.shape[1])
    return torch.sin(torch.arange(shape[0] * shape[1], device=inputs.x.device)).view(shape).to(inputs.x)


def results(function, inputs):
    out = function(inputs)
    return out, *torch.autograd.grad(out, [inputs.x, inputs.edges], gradient_for(inputs))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 5e-6)], ids=["float64", "float32"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_case(device, case, dtype, tolerance):
    inputs = random_inputs(**case, dtype=dtype, device=device)
    for actual, expected in zip(results(gine_aggregate, inputs), results(gine_aggregate_reference, inputs), strict=True):
        torch.testing.assert_close(actual, expected, rtol=tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("case", [CASES[2], *(pytest.param(case, marks=pytest.mark.slow) for case in CASES if case != CASES[2])], ids=str)
def test_kernels_under_emulation(emulate, case):
    inputs = random_inputs(**case)
    expected = results(gine_aggregate_reference, inputs)
    with torch.no_grad(), gpu_memory():
        actual = gine_cuda.forward(*inputs), *gine_cuda.backward(gradient_for(inputs), *inputs)
    for left, right in zip(actual, expected, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-11)


@pytest.mark.slow
def test_no_races(emulate):
    emulate.find_races = True
    inputs = random_inputs(**CASES[2])
    with torch.no_grad(), gpu_memory():
        gine_cuda.forward(*inputs)
        gine_cuda.backward(gradient_for(inputs), *inputs)


@pytest.mark.parametrize("device", DEVICES)
def test_opcheck_and_second_derivatives(device):
    inputs = random_inputs(device=device)
    torch.library.opcheck(torch.ops.molgcn.gine_aggregate.default, tuple(inputs))
    found = []
    for function in (gine_aggregate, gine_aggregate_reference):
        gradients = torch.autograd.grad(function(inputs).square().sum(), inputs[:2], create_graph=True)
        found.append(torch.autograd.grad(sum(gradient.square().sum() for gradient in gradients), inputs[:2]))
    for actual, expected in zip(*found, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
def test_wrong_tensors_are_named(device):
    inputs = random_inputs(device=device)
    for name, value, message in (("edges", inputs.edges[1:], "edges of shape"), ("edge_index", inputs.edge_index.int(), "edge_index of")):
        with pytest.raises(ValueError, match=message):
            gine_aggregate(inputs._replace(**{name: value}))
    with pytest.raises(IndexError, match=r"outside 0 \.\. 39"):
        gine_aggregate(inputs._replace(edge_index=inputs.edge_index + 30))


@pytest.mark.parametrize("arch", EVERY_ARCHITECTURE)
def test_compiles_for_every_architecture(arch):
    inputs, compiler = random_inputs(**CASES[ARCHITECTURES.index(arch) % 2 * 2]), Compiler(arch)
    with torch.no_grad(), launching_by(compiler):
        gine_cuda.backward(gradient_for(inputs), *inputs)
    assert "gine.cu" in compiler.sources
