"""The tasks by their names: the closed table in which `task=` and checkpoints are looked up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

from molgcn.config import Config
from molgcn.tasks.base import Task
from molgcn.tasks.classification import Classification
from molgcn.tasks.evidential import Evidential
from molgcn.tasks.mean_variance import MeanVariance
from molgcn.tasks.multiclass import Multiclass
from molgcn.tasks.quantile import Quantile
from molgcn.tasks.regression import Regression
from molgcn.tasks.uncertain import UncertainRegression
from molgcn.training.config import TrainingConfig

# what a loss of regression makes of the network's outputs; with those that are not here each output is a target's value
UNCERTAIN: dict[str, type[UncertainRegression]] = {"mve": MeanVariance, "evidential": Evidential, "quantile": Quantile}
TASKS: dict[str, type[Task]] = {task.name: task for task in (Regression, Classification, Multiclass)}


def build_task(name: str, names: Sequence[str], units: Sequence[str], num_classes: int) -> Task:
    """Return the task that a configuration or checkpoint names; see :class:`molgcn.tasks.base.Task`."""
    return TASKS[name](tuple(names), tuple(units), num_classes)


def learned_with(task: Task, options: TrainingConfig) -> Task:
    """Return the task with what its loss makes of the network's outputs: regression may learn how sure a value is too."""
    kind = UNCERTAIN.get(options.loss)
    return kind.of(task, options) if kind is not None and isinstance(task, Regression) else task


def settled(config: Config, task: str) -> Config:
    """Return the configuration with what `auto` means for a task.

    Raises:
        UserError: for an option that belongs to another task.
    """
    return replace(config, task=cast(Any, task), training=TASKS[task].settled(config.training))
