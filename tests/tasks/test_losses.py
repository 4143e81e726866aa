"""Losses over known targets agree with PyTorch's losses of these alone."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from molgcn.config.training import TrainingConfig
from molgcn.tasks.losses import ClassLoss, MaskedLoss

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 1e-2}
M, T = 300, 3


def case(count, dtype, device):
    """Return outputs, labels of which some are missing, and shares of classes."""
    torch.manual_seed(0)
    outputs = 3 * torch.randn(M, T if count == 2 else T * count, dtype=dtype, device=device)
    labels = torch.randint(count, (M, T), device=device).double()
    labels[torch.rand(M, T, device=device) < 0.4] = torch.nan
    shares = torch.rand(T, count, dtype=torch.double, device=device).add(0.1)
    return outputs.requires_grad_(), labels, shares / shares.sum(1, keepdim=True)


def expected(name, gamma, weights, outputs, labels, shares):
    """Return the mean loss over known labels, computed one by one."""
    known = ~labels.isnan()
    each = []
    for target in range(T):
        true = labels[known[:, target], target].long()
        logits = outputs.unflatten(1, (T, -1))[known[:, target], target]
        if logits.shape[1] == 1:
            logits = torch.cat([torch.zeros_like(logits), logits], dim=1)
        terms = F.cross_entropy(logits, true, reduction="none")
        if name == "focal":
            terms = (1 - logits.softmax(1).gather(1, true[:, None])[:, 0]) ** gamma * terms
        each.append(terms / (shares.shape[1] * shares[target, true]) if weights else terms)
    return torch.cat(each).mean()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("weights", [None, "balanced"])
@pytest.mark.parametrize(
    ("name", "gamma", "count"), [("bce", 2.0, 2), ("ce", 2.0, 4), ("focal", 2.0, 2), ("focal", 0.5, 4), ("focal", 0.0, 2)]
)
def test_missing_labels_weigh_nothing(name, gamma, count, weights, dtype, device):
    outputs, labels, shares = case(count, dtype, device)
    wide = torch.double if dtype == torch.double else torch.float32
    loss = ClassLoss(replace(TrainingConfig(), loss=name, focal_gamma=gamma, class_weights=weights))
    value, sums = loss(outputs, labels.to(wide), shares.to(wide))
    exact = outputs.detach().double().requires_grad_()
    right = expected(name, gamma, weights, exact, labels, shares)
    assert sums.dtype == torch.double and sums[1] == (~labels.isnan()).sum()
    tight = {"rtol": 1e-12 if wide == torch.double else 1e-5, "atol": 0}
    torch.testing.assert_close(value.double(), right, **tight)
    torch.testing.assert_close(sums[0] / sums[1], right.detach(), **tight)
    (gradient,), (right_gradient,) = torch.autograd.grad(2 * value, outputs), torch.autograd.grad(2 * right, exact)
    known = ~labels.isnan()
    assert not gradient.unflatten(1, (T, -1))[~known].any()
    torch.testing.assert_close(gradient.double(), right_gradient, rtol=TOLERANCE[dtype], atol=1e-14 if wide == torch.double else 1e-7)


@pytest.mark.parametrize(("name", "count"), [("bce", 2), ("ce", 3), ("focal", 2), ("focal", 3)])
def test_nothing_known_is_zero_and_sure_predictions_stay_finite(name, count):
    loss = ClassLoss(replace(TrainingConfig(), loss=name, focal_gamma=0.5))
    outputs = torch.full((4, 1 if count == 2 else count), 200.0, requires_grad=True)
    shares = torch.full((1, count), 1 / count)
    value, (total, number) = loss(outputs, torch.full((4, 1), torch.nan), shares)
    assert value == total == number == 0
    for label in range(count):
        value, _ = loss(outputs, torch.full((4, 1), float(label)), shares)
        (gradient,) = torch.autograd.grad(value, outputs)
        assert value.isfinite() and gradient.isfinite().all()


def test_a_class_that_training_lacks_weighs_one():
    loss = ClassLoss(replace(TrainingConfig(), loss="ce", class_weights="balanced"))
    plain = ClassLoss(replace(TrainingConfig(), loss="ce"))
    outputs, labels, shares = torch.randn(5, 3), torch.full((5, 1), 2.0), torch.tensor([[0.5, 0.5, 0.0]])
    torch.testing.assert_close(loss(outputs, labels, shares)[0], plain(outputs, labels, shares)[0])


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "count"), [("bce", 2), ("ce", 3), ("focal", 3)])
def test_a_cuda_graph_holds_loss_and_gradient(name, count):
    loss = ClassLoss(replace(TrainingConfig(), loss=name, class_weights="balanced"))
    outputs, labels, shares = case(count, torch.float32, "cuda")
    labels, shares = labels.float(), shares.float()

    def compute():
        value, sums = loss(outputs, labels, shares)
        return value, sums, *torch.autograd.grad(value, outputs)

    with torch.cuda.stream(torch.cuda.Stream()):
        compute()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = compute()
    labels.copy_(case(count, torch.float32, "cuda")[1].roll(1, 0))
    graph.replay()
    for mine, theirs in zip(captured, compute(), strict=True):
        assert torch.equal(mine, theirs)


REFERENCE = {"mse": F.mse_loss, "l1": F.l1_loss, "huber": lambda p, y: F.huber_loss(p, y, delta=0.5)}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", REFERENCE)
def test_missing_targets_weigh_nothing(name, dtype, device):
    torch.manual_seed(0)
    prediction = torch.randn(700, 3, dtype=dtype, device=device, requires_grad=True)
    target = 3 * torch.randn(700, 3, dtype=torch.double, device=device)
    target[torch.rand(700, 3, device=device) < 0.4] = torch.nan
    mean, std = torch.tensor([0.1, 5.0, -2.0], device=device), torch.tensor([1.5, 3.0, 0.1], device=device)
    known = ~target.isnan()
    wide = torch.double if dtype == torch.double else torch.float32
    loss = MaskedLoss(TrainingConfig(loss=name, huber_delta=0.5), fused=True)
    value, sums = loss(prediction, target.to(wide), mean.to(wide), std.to(wide))
    exact = prediction.detach().double().requires_grad_()
    expected = REFERENCE[name](exact[known], ((target - mean.double()) / std.double())[known])
    (expected_gradient,) = torch.autograd.grad(expected, exact)
    torch.testing.assert_close(value.double(), expected, rtol=1e-14 if dtype == torch.double else 1e-6, atol=0)
    assert sums.dtype == torch.double and sums[1] == known.sum()
    torch.testing.assert_close(sums[0] / sums[1], value.double(), rtol=1e-6, atol=0)
    (gradient,) = torch.autograd.grad(2 * value, prediction)
    assert not gradient[~known].any()
    tolerance = {torch.float64: 1e-14, torch.float32: 1e-5, torch.bfloat16: 1e-2}[dtype]
    torch.testing.assert_close(gradient.double(), 2 * expected_gradient, rtol=tolerance, atol=1e-8)


@pytest.mark.parametrize("device", DEVICES)
def test_nothing_known_is_zero_without_nan(device):
    prediction = torch.randn(4, 2, device=device, requires_grad=True)
    mean, std = torch.zeros(2, device=device), torch.ones(2, device=device)
    target, loss = torch.full((4, 2), torch.nan, device=device), MaskedLoss(TrainingConfig(loss="l1"), fused=True)
    value, (total, count) = loss(prediction, target, mean, std)
    value.backward()
    assert value == total == count == 0
    assert torch.equal(prediction.grad, torch.zeros(4, 2, device=device))
