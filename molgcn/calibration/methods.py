"""Which methods calibrate a task: those that `training.calibration` names, and what is wrong with them before any training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from molgcn.calibration.conformal import rank
from molgcn.calibration.outputs import Classes, Output, outputs_of
from molgcn.errors import UserError, shown
from molgcn.tasks.base import Task

METHODS = ("zscaling", "isotonic", "platt", "conformal")
_OF_CLASSES = ("isotonic", "platt")


def chosen_methods(wanted: str | Sequence[str], task: Task) -> tuple[str, ...]:
    """Return the methods that `training.calibration` names; `auto` stands for all that suit, with platt for probabilities.

    Raises:
        UserError: where one does not go with the task.
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
                f"training.calibration={name} suits no target of task={task.name} with this loss, for which there are "
                f"{', '.join(suitable)}. zscaling is for losses that predict standard deviations, isotonic and platt are for classes."
            )
    if set(_OF_CLASSES) <= set(names):
        raise UserError("training.calibration names isotonic and platt, which both calibrate the same probabilities. Name one of them.")
    return names


def suits(name: str, output: Output) -> bool:
    """Whether a method calibrates predictions of this kind."""
    if isinstance(output, Classes):
        return name != "zscaling"
    return name not in _OF_CLASSES and (name != "zscaling" or output.std is not None)


def check_labels(methods: Sequence[str], task: Task, targets: np.ndarray, alpha: float, part: str) -> list[str]:
    """Return the targets that have too few labels for a finite threshold of conformal prediction.

    Args:
        methods: from :func:`chosen_methods`.
        task: whose targets they are.
        targets: [n, T] of the molecules to fit on, NaN where missing.
        alpha: see :func:`molgcn.calibration.conformal.rank`.
        part: what the molecules are called, for messages.

    Raises:
        UserError: where a target has no label there, or a method for classes labels of one class only.
    """
    for name, column, output in zip(task.names, targets.T, _outputs(task), strict=True):
        found = np.unique(column[~np.isnan(column)])
        if len(found) == 0 or (len(found) == 1 and any(one in _OF_CLASSES and suits(one, output) for one in methods)):
            has = f"only labels {found[0]:g}" if len(found) else "no value"
            raise UserError(
                f"Target '{shown(name)}' has {has} in the {part} part, from which training.calibration={','.join(methods)} can learn "
                "nothing. Use a larger part (dataset.calibration_fraction) or another dataset.split_seed."
            )
    counts = (~np.isnan(targets)).sum(axis=0).tolist()
    few = [name for name, count in zip(task.names, counts, strict=True) if rank(count, alpha) > count]
    return few if "conformal" in methods else []


def _outputs(task: Task) -> list[Output]:
    """Return what predictions of no molecules say of each target: of which kind they are."""
    return outputs_of(task, np.zeros((0, task.num_predictions)))
