"""The clipping optimiser takes PyTorch's steps, by its own kernels where these fit and by PyTorch's elsewhere."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import clip_grad_norm_

from molgcn.training.clipped_adam import ClippedAdam

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("max_norm", [None, 0.1])
def test_equals_clipping_and_adamw(max_norm, dtype, device):
    torch.manual_seed(0)
    mine = nn.Sequential(nn.Linear(30, 50), nn.Linear(50, 1)).to(device, dtype)
    theirs = copy.deepcopy(mine)
    options = {"lr": 1e-2, "weight_decay": 0.1}
    ours = ClippedAdam(mine.parameters(), max_norm, decoupled_weight_decay=True, **options)
    reference = torch.optim.AdamW(theirs.parameters(), fused=True, **options)
    for _ in range(3):
        x = torch.randn(8, 30, device=device, dtype=dtype)
        for model, optimizer in ((mine, ours), (theirs, reference)):
            optimizer.zero_grad()
            model(x).square().sum().backward()
        if max_norm is not None:
            clip_grad_norm_(theirs.parameters(), max_norm)
        ours.step()
        reference.step()
    for one, other in zip(mine.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-7)
    reference.load_state_dict(ours.state_dict())  # the same format
    assert reference.state_dict()["state"].keys() == ours.state_dict()["state"].keys()


@pytest.mark.parametrize("device", DEVICES)
def test_parameters_without_gradients_stay(device):
    parameters = [nn.Parameter(torch.ones(4, device=device)) for _ in range(2)]
    optimizer = ClippedAdam(parameters, 1.0, decoupled_weight_decay=True, lr=0.1, weight_decay=0.1)
    optimizer.step()
    parameters[0].grad = torch.ones(4, device=device)
    assert optimizer.step(lambda: 7.0) == 7.0
    assert (parameters[0] != 1.0).all() and (parameters[1] == 1.0).all()


@pytest.mark.gpu
def test_captured_step_reads_rate_and_momentum_anew():
    """A replay is bit for bit the step that numbers give."""
    torch.manual_seed(0)
    captured, plain = (nn.Parameter(torch.ones(3000, device="cuda")) for _ in range(2))
    optimizers = [ClippedAdam([parameter], 1.0, decoupled_weight_decay=True, lr=0.1) for parameter in (captured, plain)]
    captured.grad = torch.randn(3000, device="cuda")
    plain.grad = captured.grad.clone()
    for optimizer in optimizers:
        optimizer.step()
    rate, momentum = torch.tensor(0.1, device="cuda"), torch.tensor(0.9, device="cuda", dtype=torch.float64)
    optimizers[0].param_groups[0].update(lr=rate, betas=(momentum, 0.999), capturable=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        optimizers[0].step()
    for value, first in ((0.1, 0.9), (0.02, 0.9), (0.02, 0.85)):
        rate.fill_(value)
        momentum.fill_(first)
        optimizers[1].param_groups[0].update(lr=float(rate), betas=(first, 0.999))
        graph.replay()
        optimizers[1].step()
    assert torch.equal(captured, plain)
