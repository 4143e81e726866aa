"""The targets' scale: a network learns standardised targets, everybody else reads them in their units."""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

import torch
from lightning import LightningModule
from torch import Tensor

from molgcn.data.digits import significant_digits


class ScaledModule(LightningModule):
    """A module with the scale of T targets as buffers, in the targets' dtype: float64 where float32 has too few digits.

    Args:
        target_mean: [T], mean over the training set's known values.
        target_std: [T], their standard deviation.
    """

    target_mean: Tensor
    target_std: Tensor

    def __init__(self, target_mean: Tensor, target_std: Tensor) -> None:
        super().__init__()
        self.register_buffer("target_mean", target_mean)
        self.register_buffer("target_std", target_std)

    @property
    def target_digits(self) -> list[int]:
        """Significant digits that show each target's spread."""
        return [significant_digits(*scale) for scale in zip(self.target_mean.tolist(), self.target_std.tolist(), strict=True)]

    def in_units(self, prediction: Tensor) -> Tensor:
        """Standardised predictions [B, T] in the targets' units, float64."""
        return prediction.double() * self.target_std + self.target_mean

    def for_loss(self, target: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Targets, mean and standard deviation as the loss takes them: float64 targets of a float32 model are standardised before."""
        mean, std = self.target_mean, self.target_std
        if torch.promote_types(target.dtype, mean.dtype) == self.dtype:
            return target, mean, std
        zero = torch.zeros_like(mean, dtype=torch.float32)
        return ((target - mean) / std).float(), zero, zero + 1

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moves and converts as any module, but for a scale in float64, whose digits stay."""
        scale = {name: value for name in ("target_mean", "target_std") if (value := getattr(self, name)).dtype == torch.float64}
        super()._apply(fn, recurse)
        for name, value in scale.items():
            setattr(self, name, value.to(getattr(self, name).device))
        return self
