"""Take a fit's training steps, each in the fastest way that does all that a plain step does."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from lightning import Trainer
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.lr_scheduler import OneCycleLR

from molgcn.ops import HAS_CPU_EXTENSION
from molgcn.training.clipped_adam import ClippedAdam
from molgcn.training.optim import float32_rates
from molgcn.training.ranks import of_all_ranks
from molgcn.training.steps import captured
from molgcn.training.steps.base import TrainingStep
from molgcn.training.steps.captured import CapturedForward, CapturedStep

if TYPE_CHECKING:
    from molgcn.nn.molecule_net import MoleculeNet
    from molgcn.training.module import MoleculeModule

log = logging.getLogger(__name__)


class ChosenSteps:
    """Chooses at a fit's first batch how steps are taken, and takes them."""

    def __init__(self) -> None:
        # takes prepared steps where it can; None where all steps are plain, and before the first batch
        self.prepared: TrainingStep | None = None
        self._captured_forward: CapturedForward | None = None
        self._accumulated, self._undecided = False, True

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes that can be copied and saved; a copy chooses anew how steps are taken."""
        return vars(self) | {"prepared": None, "_captured_forward": None, "_undecided": True}

    def take(self, module: MoleculeModule, batch: Any, last: bool) -> None:
        """Take the step of a batch; `last` says whether the optimiser steps after it."""
        if self._undecided:
            self.prepared, self._undecided = _choose(module, batch), False
        if self.prepared is None or not self.prepared(batch, not self._accumulated, last):
            _take_plainly(module, batch, last)
        elif last:
            _count_optimizer_step(module.trainer)
        self._accumulated = not last

    def look_for_replaced_layers(self, model: MoleculeNet) -> None:
        """Choose anew at the next batch where layers were replaced, as by pruning or parametrisations."""
        if self.prepared is not None and not self.prepared.watch.is_still_of(model):
            self.prepared, self._captured_forward, self._undecided = None, None, True

    def forward(self, model: MoleculeNet) -> Callable[[Any], Tensor]:
        """Return a model's forward pass for validation, from CUDA graphs where training steps are."""
        if isinstance(self.prepared, CapturedStep) and self._captured_forward is None:
            self._captured_forward = CapturedForward(model)
        return self._captured_forward or model


def _choose(module: MoleculeModule, batch: Any) -> TrainingStep | None:
    """Prepare the first way that applies; a warning says why steps are not captured where that was to be expected."""
    wanted = module.config.training.captured
    if wanted is False:
        return None
    optimizer = module.optimizers().optimizer  # type: ignore[union-attr]
    reasons = of_all_ranks(module.trainer, _why_not_captured(module, optimizer, batch))
    reason = next(filter(None, reasons), None)  # NCCL captures on all devices or on none
    if reason is None:
        return CapturedStep(module, optimizer)
    if module.trainer.is_global_zero and (wanted is True or module.device.type == "cuda"):
        log.warning("Training steps are not captured as a CUDA graph: %s.", reason)
    if HAS_CPU_EXTENSION:
        from molgcn.training.steps.direct import DirectStep

        reason = DirectStep.why_not(module, optimizer, batch)
        if reason is None:
            return DirectStep(module, optimizer)
        log.debug("Training steps are not direct: %s.", reason)
    return None


def _why_not_captured(module: MoleculeModule, optimizer: Optimizer, batch: Any) -> str | None:
    """Return why this run's steps cannot be captured, in words; None where they can."""
    if module.config.training.unfreeze:
        return "training.unfreeze changes the weights that learn"
    if (reason := captured.why_not(module.model)) is not None:
        return reason
    if getattr(batch, "padded", None) is None:
        return "shapes differ from batch to batch with this loader; use loader=packed"
    if module.trainer.world_size > 1 and torch.distributed.get_backend() != "nccl":
        return "a graph holds the exchange of gradients among GPUs only, by NCCL"
    if module.trainer.world_size > 1 and module.config.trainer.get("sync_batchnorm"):
        return "trainer.sync_batchnorm=true exchanges statistics within the network"
    schedule, in_kernels = module.lr_schedulers(), isinstance(optimizer, ClippedAdam) and optimizer.takes_tensors
    if isinstance(schedule, OneCycleLR) and schedule.cycle_momentum and not in_kernels:
        return (
            "scheduler=onecycle changes the momentum at every step, which only optimizer=adam and adamw read on the GPU; use one of "
            "them, or scheduler=cosine with scheduler.warmup_epochs"
        )
    if (name := module.listener()) is not None:
        return f"{name} is to be called within each step, a replay calls nobody"
    return None


def _take_plainly(module: MoleculeModule, batch: Any, last: bool) -> None:
    """Add a batch's gradients and, after the last batch of an accumulation, take an optimiser step that Lightning sees."""
    module.add_gradients(module.static_form(batch))
    if last:
        optimizer: Any = module.optimizers()
        with float32_rates(optimizer) if module.device.type == "cuda" else nullcontext():
            module.update_weights(optimizer)


def _count_optimizer_step(trainer: Trainer) -> None:
    """Count an optimiser step that Lightning did not see: `global_step`, `max_steps` and checkpoints rely on it."""
    progress = trainer.fit_loop.epoch_loop.manual_optimization.optim_step_progress
    progress.increment_ready()
    progress.increment_completed()
