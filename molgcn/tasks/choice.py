"""Which task a run learns: the one that `task=` names, or the one that the targets' values suggest."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import numpy as np

from molgcn.data.row_names import RowNames
from molgcn.errors import UserError, shown
from molgcn.tasks.base import Task
from molgcn.tasks.registry import build_task

if TYPE_CHECKING:
    from molgcn.data.load import LoadedDataset

log = logging.getLogger(__name__)

_MOST_CLASSES = 1_000


def choose_task(wanted: str, data: LoadedDataset) -> Task:
    """Return the task of a data set, which is checked for it; a line says where `auto` has chosen classification.

    Args:
        wanted: `task`.
        data: the set with its split.

    Raises:
        UserError: for labels that are no classes, or where training has only one.
    """
    molecules = data.molecules
    names, targets = molecules.target_names, molecules.targets
    seen = _values(targets)
    if wanted == "auto":
        wanted = _suggested(names, seen)
    count = {"classification": 2, "multiclass": _count_classes(targets)}.get(wanted, 0)
    task = build_task(wanted, names, molecules.target_units, count)
    task.check(targets, RowNames.of(molecules))
    if count:
        binary = wanted == "classification"
        _check_classes(task, [{0, 1} if binary else found for found in seen], _values(targets[data.splits["train"]]))
    return task


def _values(targets: np.ndarray) -> list[set[float]]:
    """Return the known values of each target [M, T]; of one with many more than a task has classes, the first of them."""
    return [set(np.unique(column[~np.isnan(column)])[: _MOST_CLASSES + 1].tolist()) for column in targets.T]


def _suggested(names: tuple[str, ...], seen: list[set[float]]) -> str:
    """Return classification where all values are 0 or 1 and both are there, else regression."""
    if all(found <= {0, 1} for found in seen) and set().union(*seen) == {0, 1}:
        listed = ", ".join(map(shown, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        log.info("All values of %s are 0 or 1: task=classification (task=regression learns them as numbers)", listed)
        return "classification"
    for name, found in zip(names, seen, strict=True):
        if found == {0, 1}:
            log.warning(
                "Target '%s' holds only 0 and 1, but the targets beside it do not, so that all are learned as numbers: read a prediction "
                "as a score, not as a probability. Train it by itself for probabilities.",
                shown(name),
            )
    return "regression"


def _count_classes(targets: np.ndarray) -> int:
    """Return how many classes labels [M, T] speak of: two at least."""
    return int(min(max(np.nanmax(targets), 1), _MOST_CLASSES - 1)) + 1


def _check_classes(task: Task, expected: list[set[float]], trained: list[set[float]]) -> None:
    """Warn of each target's classes that training lacks; raise UserError where it has one class only of every target."""
    if all(len(found) == 1 for found in trained):
        (only,) = trained[0]
        raise UserError(
            f"All labels of '{shown(task.names[0])}' in the training part are {only:g}, from which nothing can be learned. Use another "
            "split, or data with labels of both kinds."
        )
    for name, wanted, found in zip(task.names, expected, trained, strict=True):
        if lacking := sorted(wanted - found):
            listed = ", ".join(f"{one:g}" for one in lacking[:10]) + (", ..." if len(lacking) > 10 else "")
            log.warning("No training molecule has the class %s of '%s': it cannot be learned", listed, shown(name))
