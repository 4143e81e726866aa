"""A logger that keeps what it is given, with the time at which it came."""

from __future__ import annotations

import time
from typing import Any

from lightning.pytorch.loggers import Logger


class Recorder(Logger):
    """Attributes: `rows`, the logged values; each with `seconds` of the process's clock."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[dict[str, float]] = []

    @property
    def name(self) -> str:
        """Nothing is written."""
        return "recorder"

    @property
    def version(self) -> str:
        """There is one."""
        return ""

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Keeps them."""
        self.rows.append({**metrics, "seconds": time.perf_counter()})

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Not kept."""

    def values(self, name: str) -> list[float]:
        """Everything that was logged under a name."""
        return [row[name] for row in self.rows if name in row]
