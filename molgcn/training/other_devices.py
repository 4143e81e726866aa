"""Continue a run on another number of devices, with which an epoch has another number of steps."""

from __future__ import annotations

import math

from lightning import Trainer
from torch.optim.lr_scheduler import OneCycleLR, ReduceLROnPlateau

from molgcn.errors import UserError


def move_to_batch(trainer: Trainer, batch: int, accumulate_batches: int) -> None:
    """Put a run at a batch of the current epoch, and its schedule, if it can go on with other steps, at the same point of the training."""
    progress = trainer.fit_loop.epoch_loop.batch_progress.current
    moved = batch - progress.ready
    for name in ("ready", "started", "processed", "completed"):
        setattr(progress, name, getattr(progress, name) + moved)
    (schedule,) = (config.scheduler for config in trainer.lr_scheduler_configs)
    if isinstance(schedule, ReduceLROnPlateau) or trainer.max_steps >= 0:
        return
    if isinstance(schedule, OneCycleLR):
        raise UserError(
            "scheduler=onecycle was planned for the steps of the devices that the run had before. Resume with the same trainer.devices and "
            "trainer.num_nodes, or start a new run from its weights with ckpt_path=."
        )
    steps_per_epoch = math.ceil(trainer.num_training_batches / accumulate_batches)
    schedule.last_epoch = trainer.current_epoch * steps_per_epoch + math.ceil(batch / accumulate_batches)
