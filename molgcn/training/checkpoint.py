"""Checkpoints from which a run continues bit for bit, written so that a kill at any moment loses no earlier one."""

from __future__ import annotations

import logging
import math
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning import LightningModule, Trainer
from lightning.pytorch.callbacks import Checkpoint
from torch.optim.lr_scheduler import OneCycleLR, ReduceLROnPlateau

from molgcn.errors import UserError
from molgcn.training.checkpoint_file import BEST, LAST
from molgcn.training.loggers import MetricsCSV
from molgcn.training.monitor import LOSS
from molgcn.training.ranks import of_all_ranks, of_this_rank
from molgcn.training.stopping import stopped_early
from molgcn.training.training_loss import check_weights

log = logging.getLogger(__name__)
_MIN_SECONDS = 10.0  # least time between two epochs' checkpoints, which cost as much as tens of captured steps


class RunCheckpoint(Checkpoint):
    """Keeps `last.ckpt`, from which the run continues exactly, and `best.ckpt`, the best validation by `training.monitor`.

    `last.ckpt` is written at the end of the first and the last epoch, at the end of other epochs at most once in ten seconds, and within
    an epoch every `seconds`. Lightning's loops restart exactly from such a moment: no optimiser step is half accumulated and no validation
    is due. `best.ckpt` too is written at most once in ten seconds, and before each `last.ckpt`: better epochs that follow each other sooner
    leave only the newest, and a run that is killed meanwhile finds them again when it continues.

    Args:
        folder: where the files go.
        seconds: least time in seconds between two writes within an epoch; 0 writes after every batch, every epoch and every better one.
        clock: returns the time in seconds.
    """

    def __init__(self, folder: Path, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.folder = folder
        self.seconds = seconds
        self._between_files = min(seconds, _MIN_SECONDS)
        self.clock = clock
        self.best_value: float | None = None  # the best value of the monitor; None before the first validation
        self.best_loss = float("inf")  # the validation loss of that epoch; infinity before the first validation
        self.best_epoch: int | None = None  # that epoch, counted from 0; None before the first validation
        self.newest: Path | None = None  # the file that was written last; None before the first
        self._written = self._asked = self.clock()
        self._batches, self._ask_after = 0, 1
        self._between_epochs = False
        self._has_last = False
        self._told = False
        self._rng_to_restore: dict[str, Any] | None = None
        self._loader_to_restore: dict[str, Any] | None = None

    @property
    def last_path(self) -> Path:
        return self.folder / LAST

    @property
    def best_path(self) -> Path:
        return self.folder / BEST

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Put the training loader where that of the interrupted run stood, and Lightning's loop there too if the run had other devices.

        Lightning does not restore a loader that was made before its loops.
        """
        state, self._loader_to_restore = self._loader_to_restore, None
        if state is None:
            return
        sampler = trainer.datamodule.train_loader.sampler  # type: ignore[attr-defined]
        trainer.datamodule.train_loader.load_state_dict(state)  # type: ignore[attr-defined]
        if state["world_size"] != trainer.world_size:
            move_to_batch(trainer, sampler.position % len(sampler), pl_module.config.training.accumulate_batches)

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        """Restore the random number generators before the first batch, after everything that draws from them at start-up."""
        if self._rng_to_restore is not None:
            set_rng_state(self._rng_to_restore)
            self._rng_to_restore = None

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Write `last.ckpt` where it is due and the run can restart exactly from here."""
        due = self._asks_in_batch(trainer)
        validates = trainer.val_check_batch is not None and (batch_idx + 1) % trainer.val_check_batch == 0
        if due and pl_module.steps_after(batch_idx) and not trainer.is_last_batch and not validates:
            self._save(trainer, self.last_path)

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Write `best.ckpt` where the monitored value is the best so far."""
        monitor, values = pl_module.monitor, trainer.callback_metrics
        if trainer.sanity_checking or not trainer.fit_loop.epoch_progress.current.ready or monitor.key not in values:
            return
        value = float(values[monitor.key])
        if monitor.is_undefined(values):
            if not self._told:
                log.warning(
                    "%s is not defined after epoch %d, which so cannot be the best: no target has the labels that it needs in the "
                    "validation part, or all predictions are equal. If no epoch defines it, the last weights are the model",
                    *(monitor.key, trainer.current_epoch + 1),
                )
                self._told = True
        elif not math.isfinite(value):
            log.warning(
                "%s is %g after epoch %d, though training is finite: a prediction overflows. These weights do not count as the best",
                *(monitor.key, value, trainer.current_epoch + 1),
            )
        if monitor.is_better(value, self.best_value):
            self.best_value, self.best_loss, self.best_epoch = value, float(values[LOSS]), trainer.current_epoch
            self._save(trainer, self.best_path, at_most_every=self._between_files or None)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Write `last.ckpt` where there is none yet or it is due; Lightning runs checkpoint callbacks after all others.

        Where `trainer.max_time` ends the run between two optimiser steps, an earlier `last.ckpt` stays, from which the run continues
        exactly.
        """
        whole = trainer.is_last_batch or pl_module.steps_after(trainer.fit_loop.epoch_loop.batch_idx)
        if not self._has_last or (whole and (self._due(trainer, self._between_files) or _ends(trainer))):
            self._between_epochs = True
            self._save(trainer, self.last_path)
            self._between_epochs = False

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Let every process wait until the first one has its checkpoints on disk."""
        trainer.strategy.barrier("checkpoints")

    def _asks_in_batch(self, trainer: Trainer) -> bool:
        """Return whether a checkpoint is due after a batch, for which several processes rarely wait for each other.

        The first process tells the others whether one is due and if not, after how many batches half of the time until then will be over.
        """
        if trainer.world_size == 1:
            return self._due(trainer, self.seconds)
        self._batches += 1
        if self._batches < self._ask_after:
            return False
        passed = self.clock() - self._written
        rate = self._batches / max(self.clock() - self._asked, 1e-9)
        after = int((self.seconds - passed) * rate / 2)
        due, self._ask_after = trainer.strategy.broadcast((passed >= self.seconds, max(after, 1)))
        self._batches, self._asked = 0, self.clock()
        return bool(due)

    def _due(self, trainer: Trainer, seconds: float) -> bool:
        due = self.clock() - self._written >= seconds
        return bool(trainer.strategy.broadcast(due)) if trainer.world_size > 1 else due

    def _save(self, trainer: Trainer, path: Path, at_most_every: float | None = None) -> None:
        trainer.save_checkpoint(path, storage_options=at_most_every)
        self.newest = path
        if path == self.last_path:
            self._written, self._has_last = self.clock(), True

    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Check the weights, and add what Lightning leaves out: the loader's place, all generators and how far metrics.csv was written."""
        check_weights(trainer, pl_module, checkpoint["state_dict"].values())  # type: ignore[arg-type]
        checkpoint["train_loader"] = trainer.datamodule.train_loader.state_dict()  # type: ignore[attr-defined]
        checkpoint["rng"] = of_all_ranks(trainer, rng_state())
        if self._between_epochs:
            over = trainer.is_last_batch or stopped_early(trainer)
            (_complete_epoch if over else _leave_epoch)(checkpoint["loops"]["fit_loop"])
        checkpoint["metrics_csv_size"] = next(logger.size for logger in trainer.loggers if isinstance(logger, MetricsCSV))

    def on_load_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        """Keep the loader's place for the start of training and the generators' state for the first batch."""
        self._loader_to_restore = checkpoint["train_loader"]
        self._rng_to_restore = of_this_rank(trainer, checkpoint["rng"])
        self._has_last, self.newest = True, self.last_path

    def state_dict(self) -> dict[str, Any]:
        return {"best_value": self.best_value, "best_loss": self.best_loss, "best_epoch": self.best_epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what :meth:`state_dict` returned, unless the best weights are gone: then the best of the epochs to come count."""
        if state_dict["best_epoch"] is not None and not self.best_path.exists():
            log.warning(
                "%s is missing, the best weights so far (epoch %d). The best are chosen among the epochs from here on",
                self.best_path,
                state_dict["best_epoch"] + 1,
            )
            return
        self.best_loss, self.best_epoch = state_dict["best_loss"], state_dict["best_epoch"]
        before = None if self.best_epoch is None else self.best_loss  # older runs chose by the loss
        self.best_value = state_dict.get("best_value", before)


def _ends(trainer: Trainer) -> bool:
    last_epoch = trainer.max_epochs is not None and 0 <= trainer.max_epochs <= trainer.current_epoch + 1
    return trainer.should_stop or last_epoch or 0 <= trainer.max_steps <= trainer.global_step


def _complete_epoch(fit_loop: dict[str, Any]) -> None:
    """Make the loops' state that of a run about to start its next epoch.

    Lightning counts an epoch as completed only after the hooks in which checkpoints are written. Under `trainer.max_steps` it would resume
    such a state in the epoch that is over.
    """
    epochs, batches = fit_loop["epoch_progress"], fit_loop["epoch_loop.batch_progress"]
    for counts in (epochs["total"], epochs["current"]):
        counts["completed"] = counts["processed"]
    batches["current"] = dict.fromkeys(batches["current"], 0)
    batches["is_last_batch"] = False


def _leave_epoch(fit_loop: dict[str, Any]) -> None:
    """Make the loops' state that of a run which goes on within the epoch, where `trainer.max_steps` or `max_time` ended it.

    Lightning counts the epoch as processed and would leave out the rest of it.
    """
    epochs = fit_loop["epoch_progress"]
    for counts in (epochs["total"], epochs["current"]):
        counts["processed"] = counts["completed"]


def rng_state() -> dict[str, Any]:
    """Return the states of Python's, NumPy's, PyTorch's CPU generator and that of the current GPU."""
    version, internal, gauss = random.getstate()
    _, key, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": (version, torch.tensor(internal), gauss),  # of single numbers each one would be unpickled
        "numpy": (torch.from_numpy(np.asarray(key).astype(np.int64)), int(position), int(has_gauss), float(cached)),
        "torch": torch.get_rng_state(),
        "cuda": [torch.cuda.get_rng_state()] if torch.cuda.is_available() else [],
    }


def set_rng_state(state: dict[str, Any]) -> None:
    """Restore what :func:`rng_state` returned.

    Older checkpoints have a list for Python's state, and states of several GPUs, of which this process's GPU takes its own.
    """
    version, internal, gauss = state["python"]
    random.setstate((version, tuple(torch.as_tensor(internal).tolist()), gauss))
    key, position, has_gauss, cached = state["numpy"]
    np.random.set_state(("MT19937", key.numpy().astype(np.uint32), position, has_gauss, cached))
    torch.set_rng_state(state["torch"])
    if torch.cuda.is_available() and state["cuda"]:
        torch.cuda.set_rng_state(state["cuda"][torch.cuda.current_device() % len(state["cuda"])])


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
