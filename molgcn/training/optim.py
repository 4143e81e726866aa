"""Build optimisers and learning rate schedules by their names."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from torch import Tensor
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR, ReduceLROnPlateau

from molgcn.config.run import OptimizerConfig, SchedulerConfig
from molgcn.errors import UserError
from molgcn.training.clipped_adam import ClippedAdam


def build_optimizer(parameters: Iterable[Any], config: OptimizerConfig, max_norm: float | None = None) -> Optimizer:
    """Return Adam (Kingma and Ba, 2015), AdamW (Loshchilov and Hutter, 2019) or SGD in a fused form; see conf/optimizer for its options.

    `max_norm` is the norm to which a :class:`ClippedAdam`, which parameters on a GPU get, clips gradients. Others leave it to the caller.
    """
    groups = list(parameters)
    options: dict[str, Any] = {"lr": config.lr, "weight_decay": config.weight_decay}
    if config.name == "sgd":
        return SGD(groups, momentum=config.momentum, nesterov=config.nesterov, fused=True, **options)
    options |= {"betas": config.betas, "eps": config.eps}
    first = groups[0]["params"][0] if isinstance(groups[0], dict) else groups[0]
    if first.is_cuda:
        return ClippedAdam(groups, max_norm, decoupled_weight_decay=config.name == "adamw", **options)
    return (AdamW if config.name == "adamw" else Adam)(groups, fused=True, **options)


def build_scheduler(
    optimizer: Optimizer, config: SchedulerConfig, lr: float, steps_per_epoch: int, total_steps: int, mode: Literal["min", "max"] = "min"
) -> LRScheduler | ReduceLROnPlateau:
    """Return the schedule that `config.name` names; see conf/scheduler for its options.

    `lr` is the highest learning rate. A group of parameters with a rate of its own keeps its ratio to this one. After `total_steps` the
    schedule stays at its last rate. `mode` is "max" where a larger monitored value is better, for a plateau schedule.
    """
    warmup = round(config.warmup_epochs * steps_per_epoch)
    floor, rates = config.min_lr / lr, [group["lr"] for group in optimizer.param_groups]
    if config.name == "plateau":
        counts: Any = "rel" if mode == "min" else "abs"  # by a share of a loss, but not of a metric that may be negative
        least = [config.min_lr * (rate / lr) for rate in rates] if len(rates) > 1 else config.min_lr * (rates[0] / lr)
        return ReduceLROnPlateau(optimizer, mode, config.factor, config.patience, threshold_mode=counts, min_lr=least)
    if config.name == "onecycle":
        steps, share = max(total_steps, 2), config.pct_start
        share += 1e-9 * (steps * share == 1.0)  # PyTorch divides by steps * share - 1
        return OneCycleLR(optimizer, max_lr=rates, total_steps=steps, pct_start=share)
    shapes = {"cosine": cosine, "exponential": exponential}
    shape = shapes[config.name](max(total_steps - warmup, 1), floor) if config.name in shapes else lambda step: 1.0
    start = config.start_lr / lr
    return LambdaLR(optimizer, lambda step: warmup_factor(step, warmup, start) * shape(max(step - warmup, 0)))


def total_steps(config: SchedulerConfig, steps_per_epoch: int, max_epochs: int | None, max_steps: int) -> int:
    """Return the optimiser steps of a run, or of one epoch where nothing says when it ends, which some schedules need.

    `max_epochs` and `max_steps` are Lightning's, where None and -1 are no limit.
    """
    limits = [steps_per_epoch * max_epochs] if max_epochs is not None and max_epochs >= 0 else []
    limits += [max_steps] if max_steps >= 0 else []
    if not limits and config.name in ("cosine", "exponential", "onecycle"):
        raise UserError(
            f"scheduler={config.name} ends with the training, whose length neither trainer.max_epochs nor trainer.max_steps gives. Set one "
            "of them, or use scheduler=constant or plateau."
        )
    return max(min(limits, default=steps_per_epoch), 1)


def warmup_factor(step: int, warmup: int, start: float = 0.0) -> float:
    """Return a factor that rises linearly from `start` to 1 in `warmup` steps.

    From 0 the first factor is 1 / (`warmup` + 1), since a step with a learning rate of 0 would be wasted.
    """
    if step >= warmup:
        return 1.0
    left_out = int(start == 0.0)
    return start + (1.0 - start) * (step + left_out) / (warmup + left_out)


def cosine(steps: int, floor: float) -> Callable[[int], float]:
    """Return a factor that falls from 1 to `floor` in `steps` along half a cosine.

    Source: Loshchilov and Hutter, "SGDR", ICLR 2017, equation 5, without restarts.
    """
    return lambda step: floor + (1.0 - floor) * 0.5 * (1.0 + math.cos(math.pi * min(step / steps, 1.0)))


def exponential(steps: int, floor: float) -> Callable[[int], float]:
    """Return a factor that falls from 1 to `floor` in `steps`, at each by the same ratio.

    Source: Chemprop's learning rate schedule after its warm-up.
    """
    return lambda step: floor ** min(step / steps, 1.0)


@contextmanager
def float32_rates(optimizer: Any) -> Iterator[None]:
    """Round learning rates to float32 for a plain step on a GPU, so that it equals a captured one, which reads them as float32."""
    rates = [group["lr"] for group in optimizer.param_groups]
    for group in optimizer.param_groups:
        if not isinstance(group["lr"], Tensor):
            group["lr"] = float(np.float32(group["lr"]))
    try:
        yield
    finally:
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate


def step_scheduler(scheduler: LRScheduler | ReduceLROnPlateau) -> None:
    """Advance a schedule by one optimiser step; a plateau schedule waits for :func:`step_plateau`."""
    if isinstance(scheduler, ReduceLROnPlateau):
        return
    if isinstance(scheduler, OneCycleLR) and scheduler.last_epoch + 1 >= scheduler.total_steps:
        return
    scheduler.step()


def step_plateau(scheduler: LRScheduler | ReduceLROnPlateau, value: float) -> None:
    """Give the monitored value of a validation to a plateau schedule; other schedules ignore it."""
    if isinstance(scheduler, ReduceLROnPlateau) and math.isfinite(value):
        scheduler.step(value)
