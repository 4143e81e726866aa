"""Choose the task that a run learns: the one that `task=` names, or the one that the targets' values suggest."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from molgcn.data.levels import Rows
from molgcn.data.rows import RowNames
from molgcn.data.target_config import TargetConfig
from molgcn.errors import UserError, listed, shown
from molgcn.files.mapping_text import typed_mapping
from molgcn.tasks.base import Task
from molgcn.tasks.classes import Classification, Multiclass
from molgcn.tasks.mixed import Mixed
from molgcn.tasks.registry import build_task, learns_transformed
from molgcn.tasks.regression import Regression

if TYPE_CHECKING:
    from molgcn.config.run import Config
    from molgcn.data.load import LoadedDataset
    from molgcn.data.packed import PackedMolecules

log = logging.getLogger(__name__)

_MOST_CLASSES = 1_000
_WITHOUT_BOUNDS = ("evidential", "quantile")


def choose_task(wanted: str, data: LoadedDataset, given: TargetConfig | None = None, loss: str = "auto") -> Task:
    """Return the task of a data set that `task=` wants, after a check that it can learn the targets, of which a configuration is given.

    A log message says where `auto` has chosen classification. With a loss that cannot learn transformed targets, dataset.transform=auto
    transforms none. UserError says where a label is not a class, or the training part has a single class of every target.
    """
    molecules = data.molecules
    rows = Rows.of(molecules)
    names, targets = molecules.target_names, rows.targets
    parts = {part: rows.at(indices) for part, indices in data.splits.items()}
    given = given or TargetConfig()
    tasks = _by_column(wanted, names, targets, given.given("tasks"))
    kinds = set(tasks.values())
    name = kinds.pop() if len(kinds) == 1 else Mixed.name
    labels = targets[:, [tasks[one] == Multiclass.name for one in names]]
    count = {Regression.name: 0, Classification.name: 2}.get(name, _count_classes(labels) if labels.size else 0)
    given = replace(given, transforms=_transforms(given, tasks, targets[parts["train"]], loss))
    task = build_task(name, names, molecules.target_units, count, replace(given, tasks=tasks))
    task.check(targets, RowNames(molecules.rows[rows.molecule], molecules.files))
    for part in task.parts:
        labels = targets[:, [names.index(one) for one in part.names]]
        trained = _values(labels[parts["train"]])
        if part.num_classes:
            _check_classes(part, _values(labels), trained)
            for where in ("val", "test"):
                _warn_of_one_class(part, where, trained, _values(labels[parts[where]]))
        else:
            _warn_of_one_number(part, trained)
    return task


def _transforms(given: TargetConfig, tasks: Mapping[str, str], train: np.ndarray, loss: str) -> dict[str, str]:
    """Return the transform of each numeric target, whose values in the training part are a column of `train`."""
    if given.transform == "auto" and not learns_transformed(loss):
        given = replace(given, transform="standardize")
    columns = {name: column[~np.isnan(column)] for name, column in zip(tasks, train.T, strict=True) if tasks[name] == Regression.name}
    found = {name: given.transform_of(name, known) for name, known in columns.items()}
    skewed = [name for name, transform in found.items() if transform != given.given("transforms").get(name, "standardize")]
    if given.transform == "auto" and skewed:
        log.info("Learned as normal quantiles, since skewed: %s; dataset.transform=standardize takes values as they are", listed(skewed))
    return found


def check_options(task: Task, config: Config, molecules: PackedMolecules) -> None:
    """Raise UserError unless the options of the run's configuration, in which the task is not `auto`, fit the molecules' targets."""
    sampling, loss = config.dataset.sampling, config.training.loss
    if sampling is not None and (len(task.names) > 1 or not task.num_classes):
        what = f"task={task.name}" if len(task.names) == 1 else f"{len(task.names)} targets"
        raise UserError(
            f"dataset.sampling={sampling} does not go with {what}: it draws equally many molecules of each class of a single target. Leave "
            "it out, or weigh molecules with dataset.weights or training.class_weights."
        )
    bounded = np.zeros(len(task.names), bool) if molecules.bounds is None else (molecules.bounds != 0).any(axis=0)
    classes = {name for part in task.parts if part.num_classes for name in part.names}
    for name, has_bounds in zip(task.names, bounded, strict=True):
        if name in classes and config.dataset.given("transforms").get(name, "standardize") != "standardize":
            raise UserError(f"dataset.transforms names '{shown(name)}', which is learned as classes. Leave it out there.")
        if name in classes and has_bounds:
            raise UserError(f"Target '{shown(name)}' has bounds, which are not classes. Use task=regression, or correct its cells.")
    if loss in _WITHOUT_BOUNDS and bounded.any():
        raise UserError(f"training.loss={loss} does not go with bounds. Use l1, mse, huber or mve, or leave bounded cells empty.")


def _by_column(wanted: str, names: tuple[str, ...], targets: np.ndarray, given: Mapping[str, str]) -> dict[str, str]:
    """Return each target's task: the one that `dataset.tasks` gives for it, else the one that `task` or its values say."""
    if wanted == Mixed.name and not given:
        found = zip(names[:5], _values(targets[:, :5]), strict=True)
        example = typed_mapping("dataset.tasks", {name: (Classification if seen <= {0, 1} else Regression).name for name, seen in found})
        raise UserError(f"task=mixed needs dataset.tasks, which says what columns hold, as in {example}.")
    for name, task in given.items():
        if wanted not in ("auto", Mixed.name, task):
            raise UserError(f"task={wanted} contradicts dataset.tasks, which has {task} for '{shown(name)}'. Leave one of the two out.")
    if not given:
        return dict.fromkeys(names, _suggested(names, _values(targets)) if wanted == "auto" else wanted)
    seen = dict(zip(names, _values(targets), strict=True))
    return {name: given.get(name) or (_suggested((name,), [seen[name]]) if wanted in ("auto", Mixed.name) else wanted) for name in names}


def _values(targets: np.ndarray) -> list[set[float]]:
    """Return the distinct known values of each target [M, T], the smallest ones of a target with more than any task has classes."""
    return [set(np.unique(column[~np.isnan(column)])[: _MOST_CLASSES + 1].tolist()) for column in targets.T]


def _suggested(names: tuple[str, ...], seen: list[set[float]]) -> str:
    """Return "classification" where all values are 0 or 1 and both are there, else "regression"."""
    if all(found <= {0, 1} for found in seen) and set().union(*seen) == {0, 1}:
        listed = ", ".join(map(shown, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        log.info("All values of %s are 0 or 1: task=classification (task=regression learns them as numbers)", listed)
        return "classification"
    for name, found in zip(names, seen, strict=True):
        if found == {0, 1}:
            log.warning(
                "Target '%s' holds only 0 and 1, but the targets beside it do not, so that all are learned as numbers: read a prediction "
                "as a score, not as a probability. For probabilities use %s.",
                shown(name),
                typed_mapping("dataset.tasks", {name: Classification.name}),
            )
        elif len(found) == 2 and all(value.is_integer() for value in found):
            low, high = (f"{value:g}" for value in sorted(found))
            classes = typed_mapping("dataset.labels", {name: {low: 0, high: 1}})
            said = "Target '%s' holds only %s and %s, learned as numbers. If they are classes, use %s."
            log.warning(said, shown(name), low, high, classes)
    return "regression"


def _count_classes(targets: np.ndarray) -> int:
    """Return the number of classes of labels [M, T], at least 2."""
    return int(min(max(np.nanmax(targets), 1), _MOST_CLASSES - 1)) + 1


def _check_classes(task: Task, present: list[set[float]], trained: list[set[float]]) -> None:
    """Warn of each target's classes that are present in the set and that training lacks.

    A UserError says where training has a single class of every target.
    """
    if all(len(found) == 1 for found in trained):
        (only,) = trained[0]
        raise UserError(
            f"All labels of '{shown(task.names[0])}' in the training part are {only:g}, from which nothing can be learned. Use another "
            "split, or data with labels of several classes."
        )
    for name, known, found in zip(task.names, present, trained, strict=True):
        if lacking := [one for one in range(task.num_classes) if one not in found]:
            listed = ", ".join(map(str, lacking[:10])) + (", ..." if len(lacking) > 10 else "")
            nowhere = task.name == Multiclass.name and not known.issuperset(lacking)
            advice = (
                ", and ROC-AUC over all classes is undefined. dataset.labels numbers classes without gaps, and "
                f"{typed_mapping('dataset.tasks', {name: Classification.name})} learns two"
            )
            log.warning(
                "No training molecule has the class %s of '%s': it cannot be learned%s", listed, shown(name), advice if nowhere else ""
            )


def _warn_of_one_number(task: Task, trained: list[set[float]]) -> None:
    """Warn of each numeric target that is the same for all molecules of the training part."""
    for name, found in zip(task.names, trained, strict=True):
        if len(found) == 1:
            (only,) = found
            log.warning("All values of '%s' in the training part are %g, from which nothing can be learned", shown(name), only)


def _warn_of_one_class(task: Task, where: str, trained: list[set[float]], found: list[set[float]]) -> None:
    for name, several, here in zip(task.names, trained, found, strict=True):
        if len(several) > 1 and len(here) == 1:
            (only,) = here
            log.warning(
                "The %s part has only the class %g of '%s': metrics that compare classes, such as ROC-AUC, are undefined there and print "
                "'-'. Use another split for them",
                *({"val": "validation", "test": "test"}[where], only, shown(name)),
            )
