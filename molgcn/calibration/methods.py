"""The calibration methods that `training.calibration` names, and checks of them before training."""

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
    """Return the methods that `training.calibration` names.

    "auto" means every method that suits the task, except isotonic, since platt calibrates probabilities.

    Raises:
        UserError: when a method does not suit the task, or both isotonic and platt are named.
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
                f"training.calibration={name} suits no target of task={task.name} with this loss. Expected "
                f"one of {', '.join(suitable)}. zscaling is for losses with standard deviations, isotonic and platt are for classes."
            )
    if set(_OF_CLASSES) <= set(names):
        raise UserError("training.calibration names isotonic and platt, which both calibrate the same probabilities. Name one of them.")
    return names


def suits(name: str, output: Output) -> bool:
    """Return whether a method calibrates predictions of this kind."""
    if isinstance(output, Classes):
        return name != "zscaling"
    return name not in _OF_CLASSES and (name != "zscaling" or output.std is not None)


def check_labels(methods: Sequence[str], task: Task, targets: np.ndarray, alpha: float, part: str) -> list[str]:
    """Check that there are labels to calibrate on, and return the targets with too few for conformal prediction.

    Args:
        methods: the methods, from :func:`chosen_methods`.
        task: the task.
        targets: [n, T], the true values of the molecules to fit on, NaN where missing.
        alpha: the share of molecules that conformal intervals or sets may miss.
        part: the name of the part that these molecules are, for messages.

    Returns:
        The names of the targets whose conformal threshold would be infinite.

    Raises:
        UserError: when a target has no label, or a method for classes has labels of one class only.
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
    """Return empty predictions of each target, which show the kind of its predictions."""
    return outputs_of(task, np.zeros((0, task.num_predictions)))
