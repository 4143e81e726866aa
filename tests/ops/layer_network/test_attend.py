"""Attention on molecules by kernels agrees with plain PyTorch under emulation."""

import pytest
import torch
from emulated import gpu_memory
from layer_network_cases import network_options, padded, passes, random_call, worst_difference, worst_gradient
from pairs import parametrize_pairs
from plain_steps import PlainSteps

from molgcn.ops.layer_network.gradient_steps import AttendGrad
from molgcn.ops.layer_network.passes import Pass, backward_steps
from molgcn.ops.layer_network.steps import Attend
from molgcn.ops.layer_network.steps_cuda import CudaSteps

LAYERS = {
    "gat": {"conv": "gat", "edge_channels": 4, "attention_dropout": 0.3, "norm": "batch"},
    "gat without bonds": {"conv": "gat", "attention_dropout": 0.3, "linear_residual": True},
    "gatv2": {"conv": "gatv2", "edge_channels": 4, "attention_dropout": 0.3, "norm": "batch"},
    "gatv2 without bonds": {"conv": "gatv2", "share_weights": True, "bias": False},
}


SHAPES = [(1, 1), (8, 22), (5, 3), (2, 150), (40, 2)]  # heads and their channels


def call_of(layer: str, heads: int, channels: int, *, concat: bool = True, layers: int = 2, **options):
    own = {**LAYERS[layer], "heads": heads, "concat": concat}
    of = network_options(in_channels=7, hidden_channels=heads * channels if concat else channels, num_layers=layers, **own)
    return random_call(of, **options)


@parametrize_pairs("layer, coded, dtype", LAYERS, [True, False], [torch.float64, torch.float32], slow=True)
def test_kernels(emulate, layer, coded, dtype):
    """In float32 the project's kernels compute the products too. Rows of padding change nothing and become zero."""
    bound = 1e-10 if dtype == torch.float64 else 2e-5
    expected = passes(call_of(layer, 3, 6, coded=coded), PlainSteps)
    call = call_of(layer, 3, 6, coded=coded, dtype=dtype)
    for each in (call, padded(call, float("nan"))):
        with gpu_memory():
            actual = passes(each, CudaSteps)
        if each is call:
            assert worst_difference(actual.outputs, expected.outputs) < (bound,)
            assert worst_gradient(actual, expected) < (10 * bound,)
            continue
        for name, one in expected.gradients.items():
            found = actual.gradients[name]
            assert (found[: one.shape[0]].double() - one).norm() <= 20 * bound * max(one.norm(), expected.gradients["x"].norm()), name
            assert not found[one.shape[0] :].any(), name


@parametrize_pairs("shape, layer, concat", SHAPES, ["gat", "gatv2"], [True, False], slow=True)
def test_shapes(emulate, shape, layer, concat):
    """Heads share a warp or take several blocks; a head has one column or more than a warp has vectors."""
    heads, channels = shape
    call = call_of(layer, heads, channels, concat=concat, layers=1, sizes=[5, 9, 1], kinds=40)
    with gpu_memory():
        actual = passes(call, CudaSteps)
    expected = passes(call, PlainSteps)
    assert worst_difference(actual.outputs, expected.outputs) < (1e-10,)
    assert worst_gradient(actual, expected) < (1e-10,)


@pytest.mark.parametrize("layer", LAYERS)
def test_scores_far_from_zero(emulate, layer):
    """Scores of 1e4 give weights and gradients that are finite and right."""
    call = call_of(layer, 3, 6)
    for name, parameter in zip(call.program.parameters, call.parameters, strict=True):
        if "att" in name:
            parameter.mul_(1e4)
    with gpu_memory():
        actual = passes(call, CudaSteps)
    expected = passes(call, PlainSteps)
    assert worst_difference(actual.outputs, expected.outputs) < (1e-10,)
    assert worst_gradient(actual, expected) < (1e-8,)


@pytest.mark.slow
@pytest.mark.parametrize("layer", LAYERS)
def test_no_races(emulate, layer):
    emulate.find_races = True
    with gpu_memory():
        passes(call_of(layer, 3, 6, sizes=[150] * 3), CudaSteps)


@pytest.mark.parametrize("layer", ["gat", "gatv2"])
def test_large_batches_keep_values_of_attention_in_every_other_layer(layer):
    """Backward computes the others again, before the product that leaves sums for the norm of such a value. Small batches keep all."""
    sizes = [20] * 30
    small, large = (call_of(layer, 2, 4, layers=4, sizes=sizes * times) for times in (1, 14))
    outs = [step.out for step in large.program.steps if isinstance(step, Attend)]
    kept = [Pass(call, call.graph.x.new_empty(0), backward=False, signs_alone=False).kept for call in (small, large)]
    assert set(outs) <= kept[0]
    assert kept[1].intersection(outs) == {outs[1], outs[3]}
    steps = backward_steps(large, grad_x=False, grad_bonds=False).steps
    for number, step in enumerate(steps):
        if isinstance(step, Attend) and step.out != outs[3]:
            assert isinstance(steps[number - 1], AttendGrad)
