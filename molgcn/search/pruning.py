"""Report a trial's validations to its study, and end a trial that does worse than the others."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, Any

from lightning import Callback, Trainer

from molgcn.errors import UserError
from molgcn.training.monitor import Monitor

if TYPE_CHECKING:
    from optuna import Trial


class Pruning(Callback):
    """Reports the objective after each validation, and stops the training, as early stopping does, once the pruner says so.

    For a trial of several trainings, such as folds, the mean over trainings is reported: the best value of each finished training and the
    latest value of the present one. Once a training is stopped, the next one does not start.
    """

    def __init__(self, trial: Trial, objective: Monitor) -> None:
        self.trial = trial
        self.objective = objective
        self.pruned = False  # whether the trial was stopped
        self._bests: list[float] = []  # the best value of each training
        self._begun = True
        self._validations = 0

    @property
    def best(self) -> float | None:
        """The mean over trainings of the best value of each, where it is defined; None before the first validation that defines it."""
        return statistics.fmean(self._bests) if self._bests else None

    def on_fit_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Begin another training of the trial, which is an error after one that was stopped."""
        if self.pruned:
            from optuna import TrialPruned

            raise TrialPruned
        self._begun = True

    def on_validation_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Report the objective, which must be finite, and stop the training where the pruner says so."""
        if trainer.sanity_checking:
            return
        if self.objective.is_undefined(trainer.callback_metrics):
            return
        value = float(trainer.callback_metrics[self.objective.key])
        if not math.isfinite(value):
            raise UserError(f"{self.objective.key} is {value} after epoch {trainer.current_epoch + 1}: the training has diverged.")
        if self._begun:
            self._bests.append(value)
            self._begun = False
        *ended, best = self._bests
        if self.objective.is_better(value, best):
            self._bests[-1] = value
        self.trial.report(statistics.fmean([*ended, value]), self._validations)
        self._validations += 1
        if self.trial.should_prune():
            self.pruned = trainer.should_stop = True
