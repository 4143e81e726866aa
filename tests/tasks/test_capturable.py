"""Computations of tasks within a step can be captured as a CUDA graph: they never wait for a value or copy one from the host."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from molgcn.config.training import TrainingConfig
from molgcn.data.target_config import TargetConfig
from molgcn.tasks.registry import build_task, learned_with

aten = torch.ops.aten
# values read back, tensors made of Python's numbers, and shapes that depend on values
REFUSED = {aten._local_scalar_dense.default, aten.lift_fresh.default, aten.nonzero.default, aten.masked_select.default}


class Capturing(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        by_mask = function is aten.index.Tensor and any(index is not None and index.dtype == torch.bool for index in args[1])
        assert function not in REFUSED and not by_mask, function
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize("refused", [lambda x: x.sum().item(), lambda x: x[x > 0], lambda x: x[:, [0, 1]], lambda x: torch.tensor([1.0])])
def test_what_cannot_be_captured_is_seen(refused):
    with pytest.raises(AssertionError, match="aten"), Capturing():
        refused(torch.ones(3, 2))


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize(
    ("given", "loss"),
    [
        ({}, "mse"),
        ({"transforms": {"a": "log10", "c": "quantile_normal"}}, "huber"),
        ({}, "mve"),
        ({"tasks": {"a": "classification", "b": "regression", "c": "multiclass"}}, "auto"),
        ({"tasks": {"a": "regression", "b": "classification", "c": "regression"}, "transforms": {"c": "log10"}}, "l1"),
    ],
)
def test_a_loss_can_be_captured(given, loss, wide):
    given, options = TargetConfig(**given), TrainingConfig(loss=loss, task_weights={"b": 2} if wide else None)
    name = "mixed" if given.tasks else "regression"
    task = learned_with(build_task(name, ["a", "b", "c"], [""] * 3, 3 if given.tasks else 0, given), options)
    targets = torch.tensor([[1.0, 0, 1], [0, 1, 2], [1, 1, 0], [1, 0, 2]]) if given.tasks and "a" in given.tasks else torch.rand(4, 3) + 0.1
    targets = targets.where(targets > 0, 1.0) if given.transforms else targets
    statistics = task.statistics_of(targets.numpy()).values()
    bounds, weights = torch.tensor([[1.0, 0, -1]]).expand(4, 3), torch.ones(4, 1)
    labels = torch.cat([targets, bounds, weights], dim=1) if wide else targets
    outputs = torch.randn(4, task.num_outputs, requires_grad=True)
    compute = task.loss(options if given.tasks else task.settled(options), fused=False)
    with Capturing():
        mean, sums = compute(outputs, *task.for_loss(labels, torch.float32, *statistics))
        (gradient,) = torch.autograd.grad(mean, outputs)
    assert mean.isfinite() and sums[1] == 12 and gradient.isfinite().all()
