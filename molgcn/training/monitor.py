"""The value of a validation by which weights, epochs and runs are ranked, and its direction."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any, Literal

from molgcn.errors import UserError, listed, shown

if TYPE_CHECKING:
    from molgcn.tasks.base import Task

LOSS = "val/loss"


@dataclass(frozen=True)
class Monitor:
    """A value of each validation and its direction, which follows from the metric."""

    # the name of the value: "val/loss", "val/<metric>/<target>", or "val/<metric>", the mean over the targets whose metric is defined
    key: str
    mode: Literal["min", "max"]  # "min" where less is better, else "max"
    parts: tuple[str, ...]  # the keys of the values whose mean it is
    measured: tuple[str, ...]  # the metrics that every validation computes: those that the task logs, and the monitored one

    @classmethod
    def of(cls, key: str, task: Task, option: str = "training.monitor") -> Monitor:
        """Return the monitor of a value's name, which the key `option` gave and the task must have."""
        if key == LOSS:
            return cls(key, "min", (key,), task.logged_with(None))
        metrics = [metric for metric in task.all_metrics if all(metric not in part.unordered for part in task.parts)]
        for metric in metrics:
            holders = [part for part in task.parts if metric in part.known_metrics]
            each = {f"val/{metric}/{name}" for part in holders for name in part.names}
            if key in each or key == f"val/{metric}":
                mode: Literal["min", "max"] = "max" if metric in holders[0].rising else "min"
                return cls(key, mode, (key,) if key in each else tuple(sorted(each)), task.logged_with(metric))
        asked = key.removeprefix("val/").partition("/")[0]
        if any(asked in part.extra for part in task.parts):
            named = ",".join(dict.fromkeys(metric for part in task.parts for metric in (*(part.chosen or part.logged), asked)))
            raise UserError(
                f"{option}={shown(key)} is a metric that is computed only where training.metrics names it. Add training.metrics=[{named}]."
            )
        known, first = [LOSS, *(f"val/{metric}" for metric in metrics)], task.parts[0]
        raise UserError(
            f"{option}={shown(key)} is not a value that a validation computes with task={task.name}. Expected one of "
            f"{listed(known)}, or one target's, as in val/{first.metrics[0]}/{shown(first.names[0])}."
        )

    @property
    def maximize(self) -> bool:
        return self.mode == "max"

    def value(self, metrics: Mapping[str, float]) -> float:
        """Return the monitored value of a validation's metrics; NaN where it is defined for no target."""
        values = [metrics[part] for part in self.parts]
        known = [value for value in values if not math.isnan(value)]
        return fmean(known) if known else math.nan

    def is_undefined(self, metrics: Mapping[str, Any]) -> bool:
        """Return whether a validation does not define the value, as ROC-AUC where no target has both classes, though its loss is finite."""
        return math.isnan(float(metrics[self.key])) and math.isfinite(float(metrics[LOSS]))

    def is_better(self, value: float, best: float | None) -> bool:
        """Return whether a value is better than the best one so far, which is None before the first; NaN never is."""
        if best is None:
            best = math.inf if self.mode == "min" else -math.inf
        return value < best if self.mode == "min" else value > best
