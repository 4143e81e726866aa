"""Tells a search how a trial is doing, and ends a trial that does worse than the others."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from lightning import Callback, Trainer

from molgcn.errors import UserError

if TYPE_CHECKING:
    from optuna import Trial


class Pruning(Callback):
    """Reports the objective after each validation; stops the training, as early stopping does, once the pruner says so.

    Args:
        trial: of Optuna.
        objective: a metric of the validation, for example "val/loss".
        maximize: whether more is better.

    Attributes:
        best: the best value so far; None before the first validation.
        pruned: whether the trial was stopped.
    """

    def __init__(self, trial: Trial, objective: str, maximize: bool) -> None:
        self.trial = trial
        self.objective = objective
        self.maximize = maximize
        self.best: float | None = None
        self.pruned = False
        self._validations = 0

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Reports, and asks whether to go on.

        Raises:
            UserError: when the objective is not a metric of the validation, or not a finite number.
        """
        if trainer.sanity_checking:
            return
        if self.objective not in trainer.callback_metrics:
            known = ", ".join(sorted(name for name in trainer.callback_metrics if name.startswith("val/")))
            raise UserError(f"sweep.objective={self.objective} is not a metric of the validation. Expected one of {known}.")
        value = float(trainer.callback_metrics[self.objective])
        if not math.isfinite(value):
            raise UserError(f"{self.objective} is {value} after epoch {trainer.current_epoch + 1}: the training has diverged.")
        if self.best is None or (value > self.best if self.maximize else value < self.best):
            self.best = value
        self.trial.report(value, self._validations)
        self._validations += 1
        if self.trial.should_prune():
            self.pruned = trainer.should_stop = True
