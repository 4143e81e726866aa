import math

import pytest
import torch

from molgcn.config.run import OptimizerConfig, SchedulerConfig
from molgcn.errors import UserError
from molgcn.training.optim import build_optimizer, build_scheduler, step_plateau, step_scheduler, total_steps


def rates(config: SchedulerConfig, steps: int, total: int, steps_per_epoch: int = 10) -> list[float]:
    optimizer = build_optimizer([torch.nn.Parameter(torch.zeros(1))], OptimizerConfig(lr=0.1))
    scheduler = build_scheduler(optimizer, config, 0.1, steps_per_epoch, total)
    result = []
    for _ in range(steps):
        result.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        step_scheduler(scheduler)
    return result


def test_cosine_with_warmup():
    values = rates(SchedulerConfig(name="cosine", warmup_epochs=1.0, min_lr=0.01), 120, 110)
    assert values[:10] == pytest.approx([0.1 * (i + 1) / 11 for i in range(10)])
    expected = [0.01 + 0.09 * 0.5 * (1 + math.cos(math.pi * i / 100)) for i in range(100)]
    assert values[10:110] == pytest.approx(expected)
    assert values[110:] == pytest.approx([0.01] * 10)


def test_exponential_is_chemprop_s_schedule():
    """The rates follow Chemprop's docstring: 10 steps from 0.01 to 0.1, a hundred times its defaults, then 100 that fall back to 0.01."""
    values = rates(SchedulerConfig(name="exponential", warmup_epochs=1.0, start_lr=0.01, min_lr=0.01), 120, 110)
    assert values[:10] == pytest.approx([0.01 + 0.09 * i / 10 for i in range(10)], rel=1e-12)
    assert values[10:110] == pytest.approx([0.1 * 0.1 ** (i / 100) for i in range(100)], rel=1e-12)
    assert values[110:] == pytest.approx([0.01] * 10, rel=1e-12)


def test_constant_and_warmup():
    assert rates(SchedulerConfig(name="constant"), 5, 5) == [0.1] * 5
    assert rates(SchedulerConfig(name="constant", warmup_epochs=0.3), 5, 5) == pytest.approx([0.025, 0.05, 0.075, 0.1, 0.1])
    assert rates(SchedulerConfig(name="constant", warmup_epochs=0.2, start_lr=0.02), 4, 4) == pytest.approx([0.02, 0.06, 0.1, 0.1])


def test_onecycle_peaks_once_and_survives_extra_steps():
    values = rates(SchedulerConfig(name="onecycle", pct_start=0.25), 50, 40)
    assert max(values) == pytest.approx(0.1)
    assert values.index(max(values)) == 9
    assert values[39:] == [values[39]] * 11
    assert values[39] < 1e-5


@pytest.mark.parametrize(("share", "total"), [(0.5, 2), (0.1, 10), (0.01, 100)])
def test_onecycle_may_rise_for_one_step(share, total):
    """PyTorch's own schedule divides by zero in this case."""
    values = rates(SchedulerConfig(name="onecycle", pct_start=share), total, total)
    assert all(0 < value <= 0.1 for value in values)
    assert values[-1] < 0.02
    assert values[1:] == sorted(values[1:], reverse=True)


def test_plateau_waits_for_validation():
    optimizer = build_optimizer([torch.nn.Parameter(torch.zeros(1))], OptimizerConfig(lr=0.1))
    scheduler = build_scheduler(optimizer, SchedulerConfig(name="plateau", factor=0.5, patience=1), 0.1, 10, 100)
    for loss, expected in ((1.0, 0.1), (math.nan, 0.1), (1.0, 0.1), (1.0, 0.05)):
        step_scheduler(scheduler)
        step_plateau(scheduler, loss)
        assert optimizer.param_groups[0]["lr"] == pytest.approx(expected)


@pytest.mark.parametrize(("name", "cls"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW), ("sgd", torch.optim.SGD)])
def test_equal_to_torch(name, cls):
    torch.manual_seed(0)
    mine, theirs = (torch.nn.Parameter(torch.ones(5)) for _ in range(2))
    options = {"lr": 0.02, "weight_decay": 0.1} | ({"momentum": 0.8, "nesterov": True} if name == "sgd" else {})
    ours, reference = build_optimizer([mine], OptimizerConfig(name=name, **options)), cls([theirs], foreach=False, **options)
    for _ in range(5):
        gradient = torch.randn(5)
        mine.grad, theirs.grad = gradient.clone(), gradient.clone()
        ours.step()
        reference.step()
    torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("cls", "values", "key"),
    [
        (OptimizerConfig, {"lr": 0.0}, "optimizer.lr"),
        (OptimizerConfig, {"weight_decay": -1.0}, "optimizer.weight_decay"),
        (OptimizerConfig, {"nesterov": True}, "optimizer.nesterov"),
        (SchedulerConfig, {"factor": 1.0}, "scheduler.factor"),
        (SchedulerConfig, {"warmup_epochs": -1.0}, "scheduler.warmup_epochs"),
        (SchedulerConfig, {"name": "plateau", "warmup_epochs": 1.0}, "scheduler.warmup_epochs"),
        (SchedulerConfig, {"start_lr": 0.01}, "scheduler.start_lr"),
        (SchedulerConfig, {"warmup_epochs": 1.0, "start_lr": -0.01}, "scheduler.start_lr"),
        (SchedulerConfig, {"name": "exponential"}, "scheduler.min_lr"),
        (SchedulerConfig, {"pct_start": 0.0}, "scheduler.pct_start"),
    ],
)
def test_ranges(cls, values, key):
    with pytest.raises(UserError, match=key):
        cls(**values)


@pytest.mark.parametrize(
    ("max_epochs", "max_steps", "expected"), [(3, -1, 30), (None, 7, 7), (3, 7, 7), (3, 70, 30), (-1, 7, 7), (0, -1, 1)]
)
def test_steps_of_a_run(max_epochs, max_steps, expected):
    assert total_steps(SchedulerConfig(name="cosine"), 10, max_epochs, max_steps) == expected


@pytest.mark.parametrize("max_epochs", [None, -1])
def test_a_schedule_without_an_end(max_epochs):
    assert total_steps(SchedulerConfig(name="constant"), 10, max_epochs, -1) == 10
    with pytest.raises(UserError, match=r"scheduler=cosine ends with the training"):
        total_steps(SchedulerConfig(name="cosine"), 10, max_epochs, -1)
