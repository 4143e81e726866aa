"""The closed table of tasks, in which the names of `task=` and of checkpoints are looked up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

from molgcn.config.run import Config
from molgcn.config.training import TrainingConfig
from molgcn.data.target_config import TargetConfig
from molgcn.errors import UserError, nearest, shown
from molgcn.tasks.base import Task
from molgcn.tasks.classes import Classification, Multiclass
from molgcn.tasks.distributions import Evidential, MeanVariance, Quantile
from molgcn.tasks.mixed import Mixed
from molgcn.tasks.regression import Regression
from molgcn.tasks.uncertain import UncertainRegression

SINGLE: dict[str, type[Task]] = {task.name: task for task in (Regression, Classification, Multiclass)}
TASKS: dict[str, type[Task]] = {**SINGLE, Mixed.name: Mixed}
# the tasks of losses of regression with several outputs per target; with other losses each output is a target's value
UNCERTAIN: dict[str, type[UncertainRegression]] = {"mve": MeanVariance, "evidential": Evidential, "quantile": Quantile}


def build_task(name: str, names: Sequence[str], units: Sequence[str], num_classes: int, given: TargetConfig | None = None) -> Task:
    """Return the task that a configuration or checkpoint names.

    Args:
        name: the name of the task.
        names: the names of the targets.
        units: the units of the targets ("" = none).
        num_classes: the number of classes of each target of a multiclass task; 0 for numbers, 2 for classification.
        given: what the configuration says of the targets; None is nothing. A mixed task needs the task of each target in it.
    """
    given = given or TargetConfig()
    if name != Mixed.name:
        return SINGLE[name].of_columns(tuple(names), tuple(units), num_classes, given)
    parts = []
    for one in SINGLE:
        if places := [place for place, target in enumerate(names) if given.given("tasks")[target] == one]:
            count = {Regression.name: 0, Classification.name: 2}.get(one, num_classes)
            parts.append(build_task(one, [names[place] for place in places], [units[place] for place in places], count, given))
    return Mixed(tuple(names), tuple(units), num_classes, members=tuple(parts))


def learned_with(task: Task, options: TrainingConfig) -> Task:
    """Return the task with the targets' weights, the chosen metrics and the outputs that the loss needs, such as standard deviations.

    Raises:
        UserError: If the loss predicts standard deviations of transformed targets, a weight is given for an unknown target, or a metric is
            chosen that the task does not have.
    """
    task = _weighed(task, options.task_weights or {}).with_parts(partial(_uncertain, options=options))
    known = [*task.all_metrics, *(metric for part in task.parts for metric in part.extra)]
    for metric in options.metrics or ():
        if metric not in known:
            raise UserError(f"training.metrics names {shown(metric)}, no metric of task={task.name}.{nearest(metric, known)}")
    return task.showing(options.metrics or ())


def learns_transformed(loss: str) -> bool:
    """Whether what a loss learns of transformed values can be turned back: values and their quantiles, but no standard deviations."""
    kind = UNCERTAIN.get(loss)
    return kind is None or kind.num_values == len(kind.endings)


def _uncertain(task: Task, options: TrainingConfig) -> Task:
    kind = UNCERTAIN.get(options.loss)
    if kind is None or not isinstance(task, Regression):
        return task
    if task.transforms.change and not learns_transformed(options.loss):
        raise UserError(
            f"training.loss={options.loss} predicts standard deviations, which cannot be turned back into the target's own unit after "
            "dataset.transforms=log10 or quantile_normal. Use training.loss=quantile, whose intervals can, or leave one of the two out."
        )
    return kind.of(task, options)


def _weighed(task: Task, weights: Mapping[str, float]) -> Task:
    """Return the task with weights by target, 1 where none is given, divided by their mean."""
    for name in weights:
        if name not in task.names:
            raise UserError(f"training.task_weights names '{shown(name)}', which is not a target.{nearest(name, task.names)}")
    if not weights:
        return task
    mean = sum(weights.get(name, 1.0) for name in task.names) / len(task.names)
    if mean == 0:
        raise UserError("training.task_weights gives every target the weight 0. Give one of them more.")
    return task.with_parts(lambda part: replace(part, target_weights=tuple(weights.get(name, 1.0) / mean for name in part.names)))


def task_of(config: Config) -> Task:
    """Return the task that a run's own configuration names, without the classes and units that only its data tells."""
    names = list(config.dataset.given("tasks")) or config.dataset.targets or []
    return build_task(config.task, names, [""] * len(names), 0, config.dataset)


def check_without_data(config: Config) -> None:
    """Raise UserError unless the loss, metrics and weights of classes go with the task that the configuration names, if it names one."""
    if config.task in SINGLE:
        task = task_of(config)
        learned_with(task, replace(task.settled(config.training), task_weights=None))


def settled(config: Config, task: Task) -> Config:
    """Return the configuration in which what is left to the task, as `auto` or null, has its value; see :meth:`Task.settled`."""
    dataset = config.dataset
    if len(task.parts) > 1:
        dataset = replace(dataset, tasks={name: part.name for part in task.parts for name in part.names} | dataset.given("tasks"))
    if dataset.name == "csv" and dataset.targets is None and not dataset.levels:
        dataset = replace(dataset, targets=list(task.names))
    numbers = [part for part in task.parts if isinstance(part, Regression)]
    transforms = {name: one for part in numbers for name, one in zip(part.names, part.transforms.names, strict=False)}
    if transforms := {name: one for name, one in transforms.items() if one != "standardize"}:
        dataset = replace(dataset, transforms=dataset.given("transforms") | transforms)
    model = config.model
    if model.head_layers is None:
        model = replace(model, head_layers=task.hidden_head_layers)
    return replace(config, task=cast(Any, task.name), dataset=dataset, model=model, training=task.settled(config.training))
