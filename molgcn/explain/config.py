"""The configuration of `python -m molgcn.explain` as a checked dataclass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from molgcn.data.column_names import ColumnName
from molgcn.errors import require
from molgcn.screening.config import ScreeningConfig


@dataclass(frozen=True)
class ExplainConfig(ScreeningConfig):
    """The keys of conf/explain.yaml."""

    target: ColumnName | None = None
    class_number: int | None = None
    method: Literal["integrated_gradients", "masking", "attention"] = "integrated_gradients"
    steps: int = 64
    orders: int = 10
    tolerance: float = 0.01
    image: Literal["png", "svg"] = "png"

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("steps", "orders"):
            require(getattr(self, key) >= 1, key, getattr(self, key), "at least 1")
        require(0 < self.tolerance < 1, "tolerance", f"{self.tolerance:g}", "a share between 0 and 1")

    @property
    def adds_up(self) -> bool:
        """Whether the method shares the prediction out. Shares of attention do not add up to it, and descriptors have none."""
        return self.method != "attention"
