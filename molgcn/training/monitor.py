"""What chooses the best weights, and what early stopping and a plateau schedule look at."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from molgcn.errors import UserError, listed, shown
from molgcn.tasks.base import Task

LOSS = "val/loss"


@dataclass(frozen=True)
class Monitor:
    """A value of each validation and its direction.

    Attributes:
        key: `training.monitor`: "val/loss", "val/<metric>/<target>", or "val/<metric>", the mean over the targets of which it is defined.
        mode: "min" where less is better, else "max".
        parts: the values that it is the mean of.
        measured: the metrics that every validation computes: those that the task logs, and the one that this is of.
    """

    key: str
    mode: Literal["min", "max"]
    parts: tuple[str, ...]
    measured: tuple[str, ...]

    @classmethod
    def of(cls, key: str, task: Task) -> Monitor:
        """Return the monitor that `training.monitor` names.

        Raises:
            UserError: where the task has no such value.
        """
        if key == LOSS:
            return cls(key, "min", (key,), task.logged_with(None))
        metrics = [metric for metric in task.all_metrics if all(metric not in part.unordered for part in task.parts)]
        for metric in metrics:
            holders = [part for part in task.parts if metric in part.metrics]
            each = {f"val/{metric}/{name}" for part in holders for name in part.names}
            if key in each or key == f"val/{metric}":
                mode: Literal["min", "max"] = "max" if metric in holders[0].rising else "min"
                return cls(key, mode, (key,) if key in each else tuple(sorted(each)), task.logged_with(metric))
        known, first = [LOSS, *(f"val/{metric}" for metric in metrics)], task.parts[0]
        raise UserError(
            f"training.monitor={shown(key)} is no value of a validation with task={task.name}. Expected one of {listed(known)}, or one "
            f"target's, as in val/{first.metrics[0]}/{shown(first.names[0])}."
        )

    def value(self, metrics: Mapping[str, float]) -> float:
        """Return the value of a validation's metrics; NaN where it is defined for no target."""
        values = [metrics[part] for part in self.parts]
        known = [value for value in values if not math.isnan(value)]
        return fmean(known) if known else math.nan

    def is_better(self, value: float, best: float | None) -> bool:
        """Whether a value is better than the best one so far, None without any; NaN is not."""
        if best is None:
            best = math.inf if self.mode == "min" else -math.inf
        return value < best if self.mode == "min" else value > best
