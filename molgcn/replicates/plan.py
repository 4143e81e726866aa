"""List the trainings of which a run consists, and with `training.refit` the last one on all molecules."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from molgcn.config.run import Config
from molgcn.config.training import TrainingConfig
from molgcn.data.config import CV_BY, FOLDS
from molgcn.data.splits.given import load_splits
from molgcn.data.splits.parts import PARTS
from molgcn.errors import UserError
from molgcn.training.members import REFIT, members_of
from molgcn.training.result import RunResult

SEEDED = (*CV_BY, "cv")  # splits that depend on the seed


@dataclass(frozen=True)
class Member:
    """One training of a run of several."""

    name: str  # the name of its folder below the run's: "fold_0", "repeat_1/fold_0" or "member_2"
    config: Config  # its configuration
    overrides: list[str]  # how its configuration differs from the run's, as overrides of the command line


@dataclass(frozen=True)
class Plan:
    """The members of a run in the order in which they are trained, none for a single training.

    With `ensemble` they are models of the same split; else each has a split of its own.
    """

    members: list[Member]
    ensemble: bool


def plan(config: Config) -> Plan:
    """Return the trainings of the run that a configuration asks for, after a check that its keys go together.

    Splits come before models. With both, each split is a member that is an ensemble in turn.
    """
    _check(config)
    splits = list(_splits(config))
    return Plan(splits or list(_models(config)), ensemble=not splits)


def first_training(config: Config) -> Config:
    """Return the configuration of the first single training of a run."""
    while members := plan(config).members:
        config = members[0].config
    return config


def _splits(config: Config) -> Iterator[Member]:
    dataset = config.dataset
    axes: dict[str, int] = {}
    training = replace(config.training, refit=False)
    if dataset.repeat is None and (repeats := _num_splits(config) if dataset.split == "file" else dataset.repeats) > 1:
        axes["repeat"] = repeats
    if dataset.split == "cv" and dataset.fold is None:
        axes["fold"] = dataset.folds or FOLDS
    for places in product(*map(range, axes.values())) if axes else ():
        chosen: dict[str, Any] = dict(zip(axes, places, strict=True))
        name = "/".join(f"{axis}_{place}" for axis, place in chosen.items())
        overrides = [f"dataset.{axis}={place}" for axis, place in chosen.items()]
        yield Member(name, replace(config, dataset=replace(dataset, **chosen), training=training), overrides)


def _num_splits(config: Config) -> int:
    """Return the number of splits in files. A run of one training goes on without its file, since its folder has the split."""
    try:
        return len(load_splits(config.dataset.split_files))
    except UserError:
        if config.resume is None or members_of(Path(config.resume)):
            raise
        return 1


def _models(config: Config) -> Iterator[Member]:
    if config.training.ensemble == 1:
        return
    alone = replace(config.training, ensemble=1)
    for place in range(config.training.ensemble):
        seed = config.seed + place
        yield Member(f"member_{place}", replace(config, training=alone, seed=seed), [f"seed={seed}"])


def _check(config: Config) -> None:
    dataset = config.dataset
    for key in ("folds", "fold"):
        value = getattr(dataset, key)
        if value is not None and dataset.split != "cv":
            raise UserError(
                f"dataset.{key}={value} goes with dataset.split=cv, and here dataset.split={dataset.split}. Leave the key out, or take "
                "dataset.split=cv, whose folds follow dataset.cv_by."
            )
    if dataset.repeats > 1 and (dataset.split not in SEEDED or len(dataset.files) == len(PARTS)):
        named = "files of their own" if dataset.split in SEEDED else f"dataset.split={dataset.split}"
        raise UserError(
            f"dataset.repeats={dataset.repeats} draws the split anew each time, and the parts by {named} are always the same. Use "
            f"dataset.split={'|'.join(SEEDED)}, or train several models on this split with training.ensemble={dataset.repeats}."
        )
    if len(dataset.split_files) > 1 and dataset.split != "file":
        raise UserError(
            f"dataset.split_file={dataset.split_files} names several files, which go with dataset.split=file. Name one, or add it."
        )
    if dataset.split == "cv" and len(dataset.files) > 1:
        raise UserError(
            "dataset.val_path and dataset.test_path are parts of their own, but folds of dataset.split=cv test in turn. Leave them out, "
            "and evaluate the models on such a file afterwards: python -m molgcn.evaluate ckpt=<run> dataset=<file>."
        )


def check_refit(config: Config) -> None:
    """Raise UserError, before anything is trained, unless the run is a whole cross-validation and no option needs a validation part."""
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
    """Return the training on all molecules that follows complete trainings of folds, which are in these folders.

    It has no validation and no test part, hence no early stopping and no calibration. Its schedule ends with its epochs: the median of the
    folds' best, or of all their epochs without validation.
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
