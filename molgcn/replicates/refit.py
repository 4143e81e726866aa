"""The last training of a cross-validation with `training.refit`: on all molecules, for the median of the folds' best epochs."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from molgcn.config.run import Config
from molgcn.config.training import TrainingConfig
from molgcn.errors import UserError
from molgcn.replicates.plan import Member
from molgcn.training.members import REFIT
from molgcn.training.result import RunResult


def check_refit(config: Config) -> None:
    """Check, before anything is trained, that a run can be refitted.

    Raises:
        UserError: If it is not a whole cross-validation, or an option needs a validation part, which all molecules leave out.
    """
    if config.dataset.split != "cv" or config.dataset.fold is not None or config.dataset.repeat is not None:
        raise UserError(
            "training.refit=true follows a whole cross-validation, whose folds say for how many epochs to train. Use dataset.split=cv with "
            "it, without dataset.fold and dataset.repeat, or leave it out."
        )
    if config.scheduler.name == "plateau":
        raise UserError(
            "training.refit=true does not go with scheduler=plateau, which needs a validation part: all molecules train. Leave out one."
        )


def refit_of(config: Config, trainings: Sequence[Path]) -> Member:
    """Return the training on all molecules that follows complete trainings of folds.

    It has no validation and no test part, hence no early stopping and no calibration. Its schedule ends with its epochs.

    Args:
        config: the configuration of the run.
        trainings: the folders of all trainings of the folds, with their `result.json`. Without validation all their epochs count.
    """
    results = [RunResult.load(training) for training in trainings]
    epochs = max(int(statistics.median(result.best_epoch or result.epochs for result in results) + 0.5), 1)
    dataset = replace(
        config.dataset,
        split="random",
        split_fractions=(1, 0, 0),
        folds=None,
        cv_by="random",
        repeats=1,
        split_column=None,
        calibration_fraction=0.0,
    )
    training = replace(config.training, refit=False, monitor=TrainingConfig.monitor, calibration="none")
    trainer = {key: value for key, value in config.trainer.items() if key not in ("max_steps", "max_time")} | {"max_epochs": epochs}
    callbacks = replace(config.callbacks, early_stopping_patience=None)
    changed = replace(config, dataset=dataset, training=training, trainer=trainer, callbacks=callbacks)
    return Member(REFIT, changed, ["dataset.split_fractions=[1,0,0]", f"trainer.max_epochs={epochs}"])
