"""MAE, RMSE and R2 of every target, over the values that are not missing."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torchmetrics import MeanAbsoluteError, MeanSquaredError, MetricCollection, R2Score


class TargetMetrics(nn.Module):
    """torchmetrics' MAE, RMSE and R2, one set a target.

    Values come in standardised, which keeps the sums well scaled in float32 (R2 does not change, MAE and RMSE are multiplied by the
    target's scale), and are weighted one molecule one vote whatever the batch size.

    Args:
        names: the targets.
    """

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__()
        self.names = tuple(names)
        self.targets = nn.ModuleList(
            MetricCollection({"mae": MeanAbsoluteError(), "rmse": MeanSquaredError(squared=False), "r2": R2Score()}, compute_groups=False)
            for _ in self.names
        )

    def update(self, prediction: Tensor, target: Tensor) -> None:
        """Adds standardised predictions and targets [B, T], NaN = missing."""
        known = ~torch.isnan(target)
        for i, metrics in enumerate(self.targets):
            if known[:, i].any():
                metrics.update(prediction[known[:, i], i].float(), target[known[:, i], i].float())  # type: ignore[operator]

    def compute(self, scale: Tensor) -> dict[str, float]:
        """`mae/<target>` and `rmse/<target>` in the targets' units, `r2/<target>`; NaN where fewer values are known than needed.

        Args:
            scale: [T], what one standardised unit is worth.
        """
        result: dict[str, float] = {}
        for i, (name, metrics) in enumerate(zip(self.names, self.targets, strict=True)):
            count = int(metrics["r2"].total)  # type: ignore[index]
            for key, needed, factor in (("mae", 1, scale[i]), ("rmse", 1, scale[i]), ("r2", 2, 1.0)):
                value = metrics[key].compute() * factor if count >= needed else torch.nan  # type: ignore[index]
                result[f"{key}/{name}"] = float(value)
        return result

    def reset(self) -> None:
        """Forgets all values."""
        for metrics in self.targets:
            metrics.reset()  # type: ignore[operator]
