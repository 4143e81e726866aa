"""Steps of Adam by our kernels are PyTorch's, under emulation and on a GPU."""

from __future__ import annotations

import math

import pytest
import torch
from architectures import EVERY_ARCHITECTURE
from compiler import needs_compiler
from compiling import compiles
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from molgcn.ops.adam_cuda import Parameter, adam_step

SHAPES = [(1,), (80, 40), (1025,), (0,), (3, 7)]
DEVICES = [pytest.param("cpu", marks=needs_compiler), pytest.param("cuda", marks=pytest.mark.gpu)]


def states_of(values: list[Tensor], device: str) -> list[Parameter]:
    states = [(value, torch.zeros_like(value), torch.zeros_like(value), torch.zeros_like(value), torch.zeros(())) for value in values]
    return [Parameter(*(tensor.float().to(device) for tensor in state)) for state in states]


def options_of(**changes):
    return {"lr": 1e-2, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.05, "decoupled_weight_decay": True} | changes


@pytest.mark.parametrize("arch", EVERY_ARCHITECTURE)
def test_compiles_for_every_architecture(arch):
    for most in (64, 560):
        assert compiles("adam.cu", {"MAX_TENSORS": most, "MAX_GROUPS": 8}, arch)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("copies", "max_norm", "decoupled"),
    [
        *[(1, None, True), (1, None, False), (1, 0.5, True), (1, 0.5, False), (1, 1e6, True)],
        pytest.param(13, 0.5, True, marks=pytest.mark.slow),
    ],
)
def test_equals_torch_in_float64(copies, max_norm, decoupled, device, request):
    if device == "cpu":
        request.getfixturevalue("emulate")
    torch.manual_seed(0)
    values = [torch.randn(shape, dtype=torch.float64).float() for shape in SHAPES * copies]
    groups = [options_of(decoupled_weight_decay=decoupled), options_of(lr=3e-3, weight_decay=0.0, decoupled_weight_decay=decoupled)]
    ours = [states_of(values[half::2], device) for half in range(2)]
    theirs = [[nn.Parameter(value.double()) for value in values[half::2]] for half in range(2)]
    optimizer = torch.optim.Adam([{"params": part, **options} for part, options in zip(theirs, groups, strict=True)], foreach=False)
    first = torch.tensor(0.9, dtype=torch.float64, device=device)
    on_device = [groups[0], groups[1] | {"lr": torch.tensor(3e-3, device=device), "betas": (first, 0.999)}]
    for number in range(3):
        for mine, reference in zip(ours[0] + ours[1], theirs[0] + theirs[1], strict=True):
            gradient = torch.randn(reference.shape) * 10.0**-number
            mine.gradient.copy_(gradient)
            reference.grad = gradient.double()
        adam_step(list(zip(on_device, ours, strict=True)), max_norm)
        if max_norm is not None:
            clip_grad_norm_(theirs[0] + theirs[1], max_norm)
        optimizer.step()
    for mine, reference in zip(ours[0] + ours[1], theirs[0] + theirs[1], strict=True):
        state = optimizer.state[reference]
        for one, other in ((mine.parameter, reference), (mine.mean, state["exp_avg"]), (mine.square, state["exp_avg_sq"])):
            torch.testing.assert_close(one.cpu().double(), other.detach(), rtol=2e-6, atol=1e-8)
        assert mine.step == 3


@pytest.mark.parametrize("device", DEVICES)
def test_a_gradient_that_is_not_a_number_reaches_all_parameters(device, request):
    """As :func:`torch.nn.utils.clip_grad_norm_` lets it."""
    if device == "cpu":
        request.getfixturevalue("emulate")
    states = states_of([torch.ones(3), torch.ones(2000)], device)
    states[0].gradient[1] = math.nan
    adam_step([(options_of(), states)], 1.0)
    assert all(state.parameter.isnan().all() for state in states)
