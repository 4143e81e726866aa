"""The calibration methods that `training.calibration` names, and checks of them before training."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from molgcn.calibration.conformal import rank
from molgcn.calibration.outputs import Classes, Output, outputs_of
from molgcn.errors import UserError, shown
from molgcn.tasks.base import Task

log = logging.getLogger(__name__)
METHODS = ("zscaling", "isotonic", "platt", "conformal")
_OF_CLASSES = ("isotonic", "platt")


def chosen_methods(wanted: str | Sequence[str], task: Task, key: str = "training.calibration") -> tuple[str, ...]:
    """Return the methods that `training.calibration`, or another key, names; UserError unless they suit the task and each other.

    "auto" means every method that suits the task, except isotonic, since platt calibrates probabilities.
    """
    if wanted == "none":
        return ()
    outputs = _outputs(task)
    suitable = tuple(name for name in METHODS if any(suits(name, output) for output in outputs))
    if wanted == "auto":
        return tuple(name for name in suitable if name != "isotonic")
    names = (wanted,) if isinstance(wanted, str) else tuple(dict.fromkeys(wanted))
    for name in names:
        if name not in suitable:
            raise UserError(
                f"{key}={name} suits no target of task={task.name} with this loss. Expected "
                f"one of {', '.join(suitable)}. zscaling is for losses with standard deviations, isotonic and platt are for classes."
            )
    if set(_OF_CLASSES) <= set(names):
        raise UserError(f"{key} names isotonic and platt, which both calibrate the same probabilities. Name one of them.")
    return names


def suits(name: str, output: Output) -> bool:
    """Return whether a method calibrates predictions of this kind."""
    if isinstance(output, Classes):
        return name != "zscaling"
    return name not in _OF_CLASSES and (name != "zscaling" or output.std is not None)


def can_learn(output: Output, true: np.ndarray) -> bool:
    """Return whether a target can be calibrated on true values [n], NaN where missing: any numbers, or labels of two classes or more."""
    return len(np.unique(true[~np.isnan(true)])) > isinstance(output, Classes)


def check_labels(
    methods: Sequence[str],
    task: Task,
    targets: np.ndarray,
    alpha: float,
    where: str,
    advice: str = "Use a larger part (dataset.calibration_fraction) or another dataset.split_seed.",
) -> None:
    """Warn of targets [n, T] without labels from which to learn, or too few for conformal prediction; UserError where no target has them.

    `where` names the molecules in messages, such as "the calibration part", and `advice` says how to get more of them.
    """
    columns = {name: column[~np.isnan(column)] for name, column in zip(task.names, targets.T, strict=True)}
    without = [name for name, output in zip(task.names, _outputs(task), strict=True) if not can_learn(output, columns[name])]
    if without:
        has = [f"'{shown(name)}' has {f'only {columns[name][0]:g}' if len(columns[name]) else 'no value'}" for name in without]
        said = ", ".join(has[:5]) + (f" and {len(has) - 5} more" if len(has) > 5 else "")
        if len(without) == len(columns):
            raise UserError(
                f"{where[0].upper()}{where[1:]} has no labels from which calibration={','.join(methods)} can learn: {said} there. {advice}"
            )
        log.warning("Targets of which %s has no two classes or no values stay uncalibrated: %s there", where, said)
    few = [shown(name) for name, known in columns.items() if name not in without and rank(len(known), alpha) > len(known)]
    if few and "conformal" in methods:
        log.warning(
            "%s has too few labels of %s for intervals or sets that miss only %g: they will be infinite or hold every class",
            *(f"{where[0].upper()}{where[1:]}", ", ".join(few[:5]), alpha),
        )


def _outputs(task: Task) -> list[Output]:
    """Return empty predictions of each target, which show the kind of its predictions."""
    return outputs_of(task, np.zeros((0, task.num_predictions)))
