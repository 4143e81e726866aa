"""What chooses the best weights, and what early stopping and a plateau schedule look at."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from molgcn.data.config import listed
from molgcn.errors import UserError, shown
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
            return cls(key, "min", (key,), task.logged)
        for metric in task.metrics:
            each = {f"val/{metric}/{name}" for name in task.names}
            if key in each or key == f"val/{metric}":
                measured = tuple(one for one in task.metrics if one in task.logged or one == metric)
                return cls(key, "max" if metric in task.rising else "min", (key,) if key in each else tuple(sorted(each)), measured)
        known = [LOSS, *(f"val/{metric}" for metric in task.metrics)]
        raise UserError(
            f"training.monitor={shown(key)} is no value of a validation with task={task.name}. Expected one of {listed(known)}, or one "
            f"target's, as in val/{task.metrics[0]}/{shown(task.names[0])}."
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
