"""A logger that keeps the logged values in memory, with the time of each."""

from __future__ import annotations

import time
from typing import Any

from lightning.pytorch.loggers import Logger


class Recorder(Logger):
    """A logger that keeps the logged values in memory.

    Attributes:
        rows: the logged values of each call by name, with `seconds` of `time.perf_counter`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, float]] = []

    @property
    def name(self) -> str:
        """The name of the logger."""
        return "recorder"

    @property
    def version(self) -> str:
        """The version of the run, which is always the same."""
        return ""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Keep the metrics with the current time."""
        self.rows.append({**metrics, "seconds": time.perf_counter()})

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Ignore the hyperparameters."""

    def values(self, name: str) -> list[float]:
        """Return all values that were logged under a name."""
        return [row[name] for row in self.rows if name in row]
