"""Regression: targets are numbers with units, of which a network learns standardised values."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from molgcn.config import TrainingConfig
from molgcn.data.digits import digits_of, significant_digits
from molgcn.data.packed import PackedMolecules
from molgcn.metrics import errors_of
from molgcn.spreadsheet import Writer
from molgcn.tasks.base import Task
from molgcn.tasks.masked_loss import MaskedLoss

if TYPE_CHECKING:
    from molgcn.report.page import Subject


class Regression(Task):
    """Predict T numbers of a molecule, in the targets' units.

    The statistics are each target's mean [T] and standard deviation [T] over the training set's known values, in the targets' dtype:
    float64 where float32 has too few digits.
    """

    metrics = ("mae", "rmse", "r2")
    plot_name = "parity"

    def loss(self, config: TrainingConfig, fused: bool) -> MaskedLoss:
        """Return the loss that `training.loss` names, over the targets that are not missing."""
        return MaskedLoss(config, fused)

    def for_loss(self, targets: Tensor, dtype: torch.dtype, *statistics: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return targets, mean and standard deviation; float64 targets of a float32 model are standardised before."""
        mean, std = statistics
        if torch.promote_types(targets.dtype, mean.dtype) == dtype:
            return targets, mean, std
        zero = torch.zeros_like(mean, dtype=torch.float32)
        return ((targets - mean) / std).float(), zero, zero + 1

    def decode(self, outputs: Tensor, *statistics: Tensor) -> Tensor:
        """Turn standardised outputs [B, T] into values in the targets' units, float64."""
        mean, std = statistics
        return outputs.double() * std + mean

    def digits(self, *statistics: Tensor) -> list[int]:
        """Return the significant digits that show each target's spread."""
        return [significant_digits(*scale) for scale in zip(*(values.tolist() for values in statistics), strict=True)]

    def measure(self, predictions: Tensor | np.ndarray, targets: Tensor | np.ndarray) -> dict[str, float]:
        """Compute `mae/<target>`, `rmse/<target>` and `r2/<target>`; see :func:`molgcn.metrics.errors_of`."""
        errors = errors_of(predictions, targets)
        return {f"{metric}/{name}": errors[metric][place] for place, name in enumerate(self.names) for metric in self.metrics}

    def write_predictions(self, path: Path, molecules: PackedMolecules, predictions: np.ndarray) -> None:
        """Write the columns `row`, `smiles`, and `<target> [<unit>]` and `<target> [<unit>] predicted` of every target."""
        header = ["row", "smiles", *(column for label in self.labels for column in (label, f"{label} predicted"))]
        smiles = molecules.smiles or [""] * len(molecules)
        forms = [f".{digits_of(column)}g" for column in molecules.targets.T for _ in ("true", "predicted")]
        with open(path, "w", newline="") as file:
            writer = Writer(file)
            writer.writerow(header)
            for i, (true, predicted) in enumerate(zip(molecules.targets, predictions, strict=True)):
                values = [value for pair in zip(true, predicted, strict=True) for value in pair]
                writer.writerow([int(molecules.rows[i]), smiles[i], *map(_cell, values, forms)])

    def plot(self, targets: np.ndarray, predictions: np.ndarray, path: Path) -> None:
        """Draw predicted against true values, one panel a target."""
        from molgcn.report.plots import plot_parity  # Matplotlib takes long to import

        plot_parity(targets, predictions, self.names, self.units, path)

    def write_report(self, path: Path, subject: Subject) -> None:
        """Write the page: errors with units, parity, errors by size and scaffold, and the worst molecules drawn."""
        from molgcn.report.page import write_report

        write_report(path, subject)


def _cell(value: float, form: str) -> str:
    return "" if math.isnan(value) else format(value, form)
