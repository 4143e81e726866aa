"""When to stop before `trainer.max_epochs`."""

from __future__ import annotations

from typing import Any

from lightning import Callback, Trainer
from lightning.pytorch.callbacks import EarlyStopping

from molgcn.config import CallbacksConfig


class PatientStopping(EarlyStopping):
    """Lightning's early stopping on `val/loss`, which also stays stopped when a run that was killed after its last epoch is resumed.

    A resumed run has the patience that it is given now.
    """

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues from a checkpoint's."""
        super().load_state_dict({**state_dict, "patience": self.patience})

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Stops a resumed run whose patience was over."""
        if self.wait_count >= self.patience:
            trainer.should_stop = True


class StopBelowRate(Callback):
    """Stops once the schedule has taken the learning rate below `rate` (the rule of "Benchmarking GNNs", Dwivedi et al., 2023)."""

    def __init__(self, rate: float) -> None:
        self.rate = rate

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Stops a resumed run whose rate was there already."""
        self._check(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Looks at the rate after the epoch's schedule step."""
        self._check(trainer)

    def _check(self, trainer: Trainer) -> None:
        if trainer.optimizers[0].param_groups[0]["lr"] < self.rate:
            trainer.should_stop = True


def stopping_callbacks(config: CallbacksConfig) -> list[Callback]:
    """The callbacks that `callbacks.early_stopping_patience` and `callbacks.stop_below_lr` ask for."""
    callbacks: list[Callback] = []
    if config.early_stopping_patience is not None:
        callbacks.append(PatientStopping("val/loss", min_delta=config.early_stopping_min_delta, patience=config.early_stopping_patience))
    if config.stop_below_lr is not None:
        callbacks.append(StopBelowRate(config.stop_below_lr))
    return callbacks
