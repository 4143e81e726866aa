"""Stop a run before `trainer.max_epochs`."""

from __future__ import annotations

import logging
from typing import Any

from lightning import Callback, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from lightning.pytorch.utilities import rank_zero_only

from molgcn.config.run import CallbacksConfig
from molgcn.errors import counted
from molgcn.training.monitor import Monitor

log = logging.getLogger(__name__)
PATIENCE = 20  # validations: 154 of 159 trainings of the recipe keep the weights that all 60 epochs would have left


class PatientStopping(EarlyStopping):
    """Stops as Lightning's early stopping does, and stays stopped when a run that was killed after its last epoch is resumed.

    A resumed run has the patience that it is given now. A value that is infinite, or NaN as the loss is, counts as no improvement; a
    validation that does not define the value does not count.
    """

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Look at the value where it is defined, if the interval of validations is not an epoch."""
        if not pl_module.monitor.is_undefined(trainer.callback_metrics):
            super().on_validation_end(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Look at the value where it is defined, if the interval of validations is an epoch."""
        if not pl_module.monitor.is_undefined(trainer.callback_metrics):
            super().on_train_epoch_end(trainer, pl_module)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore a checkpoint's state, but for its patience."""
        super().load_state_dict({**state_dict, "patience": self.patience})

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Stop a resumed run whose patience was already exhausted."""
        trainer.should_stop |= self.is_over(trainer)

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Say that patience has ended the run."""
        if self.is_over(trainer):
            waited = counted(self.wait_count, "validation")
            _say_end(trainer, f"{self.monitor} has not improved in {waited} (callbacks.early_stopping_patience={self.patience})")

    def is_over(self, trainer: Trainer) -> bool:
        return bool(self.wait_count >= self.patience)


class StopBelowRate(Callback):
    """Stops once the schedule has taken the learning rate below `rate` (the rule of "Benchmarking GNNs", Dwivedi et al., 2023)."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Stop where the learning rate is below after the epoch's last schedule step."""
        trainer.should_stop |= self.is_over(trainer)

    on_train_start = on_train_epoch_end  # of a resumed run whose learning rate was already below

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Say that the learning rate has ended the run."""
        if self.is_over(trainer):
            _say_end(trainer, f"the learning rate is below callbacks.stop_below_lr={self.rate:g}")

    def is_over(self, trainer: Trainer) -> bool:
        return bool(trainer.optimizers[0].param_groups[0]["lr"] < self.rate)


@rank_zero_only
def _say_end(trainer: Trainer, why: str) -> None:
    log.info("Training ends after %s of at most %s: %s", counted(trainer.current_epoch, "epoch"), trainer.max_epochs, why)


def stopped_early(trainer: Trainer) -> bool:
    """Return whether a stopping callback has ended the run for good; one that `trainer.max_steps` or `max_time` ended can go on."""
    return any(callback.is_over(trainer) for callback in trainer.callbacks if isinstance(callback, PatientStopping | StopBelowRate))  # type: ignore[attr-defined]


def stopping_callbacks(config: CallbacksConfig, monitor: Monitor, validates: bool) -> list[Callback]:
    """Return the callbacks that `callbacks.early_stopping_patience`, which looks at the monitor, and `callbacks.stop_below_lr` ask for.

    `validates` says whether the run has validations, for a patience of "auto".
    """
    callbacks: list[Callback] = []
    patience, least = config.early_stopping_patience, config.early_stopping_min_delta
    if patience == "auto":
        patience = PATIENCE if validates else None
    if patience is not None:
        callbacks.append(PatientStopping(monitor.key, least, patience, mode=monitor.mode, check_finite=False))
    if config.stop_below_lr is not None:
        callbacks.append(StopBelowRate(config.stop_below_lr))
    return callbacks
