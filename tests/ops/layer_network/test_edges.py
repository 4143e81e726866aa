"""Kernels for steps on rows of directed bonds agree with plain PyTorch under emulation."""

from functools import partial

import pytest
import torch
from emulated import gpu_memory
from layer_network_cases import network_options, padded, passes, random_call, worst_difference, worst_gradient
from pairs import parametrize_pairs
from plain_steps import PlainSteps
from within_backward import within_backward

from molgcn.ops.layer_network import passes as of_passes
from molgcn.ops.layer_network.gradient_steps import WeightGrads
from molgcn.ops.layer_network.steps_cuda import CudaSteps

OPTIONS = {
    "dropout": {"conv": "dmpnn", "edge_channels": 4, "dropout": 0.3},
    "biases": {"conv": "dmpnn", "edge_channels": 4, "message_bias": True, "activation": "gelu", "pool": "max"},
    "without bonds": {"conv": "dmpnn", "pool": "sum"},
    "undirected": {"conv": "dmpnn", "edge_channels": 4, "undirected": True},
    "one round": {"conv": "dmpnn", "edge_channels": 4, "num_layers": 1},
    "gates": {"conv": "gated_gcn", "edge_channels": 4, "norm": "batch", "residual": True, "dropout": 0.3},
    "gates of one width": {"conv": "gated_gcn", "edge_channels": 20, "norm": "layer", "residual": True, "feed_forward": True},
    "gates without norm": {"conv": "gated_gcn", "edge_channels": 4, "activation": "silu", "dropout": 0.2, "last_activation": False},
}


@parametrize_pairs("options, coded, dtype", OPTIONS, [True, False], [torch.float64, torch.float32], slow=True)
def test_kernels(emulate, options, coded, dtype):
    """In float32 the project's kernels compute the products too."""
    bound = 1e-10 if dtype == torch.float64 else 2e-5
    own = {"num_layers": 2 if dtype == torch.float32 else 3, **OPTIONS[options]}
    of = network_options(in_channels=7, hidden_channels=20, **own)
    call = random_call(of, coded=coded, dtype=dtype)
    expected = passes(random_call(of, coded=coded), PlainSteps)
    for each in (call, padded(call, float("nan"))):
        with gpu_memory():
            actual = passes(each, CudaSteps)
        if each is call:
            assert worst_difference(actual.outputs, expected.outputs) < (bound,)
            assert worst_gradient(actual, expected) < (10 * bound,)
        else:
            assert all(one[: len(expected.outputs[name])].isfinite().all() for name, one in actual.outputs.items() if name == "pooled")
            assert all(one.isfinite().all() for name, one in actual.gradients.items() if name not in ("x", "bonds"))


def test_a_large_batch_adds_up_the_gradients_of_rounds_one_after_another(emulate, monkeypatch):
    """So that no round's gradients are kept until those of all are known."""
    of = network_options("dmpnn", in_channels=7, hidden_channels=20, num_layers=4, edge_channels=4)
    expected = passes(random_call(of), PlainSteps)
    monkeypatch.setattr(of_passes, "FEW_ATOMS", 10)
    call = random_call(of, dtype=torch.float32)
    steps = of_passes.backward_steps(call, grad_x=True, grad_bonds=True).steps
    assert sum(isinstance(step, WeightGrads) for step in steps) == 4
    with gpu_memory():
        actual = passes(call, CudaSteps)
    assert worst_gradient(actual, expected) < (2e-4,)


@pytest.mark.parametrize("options", ["undirected", "gates"])
def test_gradients_take_the_place_of_what_nothing_reads_again(emulate, options):
    """Unless autograd may read it again, as it may where the passes are called outside of it."""
    of = network_options(in_channels=7, hidden_channels=20, **{"num_layers": 3, **OPTIONS[options]})
    call, found = random_call(of, dtype=torch.float32), []
    for keeps in (True, False):
        with gpu_memory():
            found.append(within_backward(partial(passes, call, CudaSteps), keeps).gradients)
    assert all(torch.equal(one, found[1][name]) for name, one in found[0].items())
