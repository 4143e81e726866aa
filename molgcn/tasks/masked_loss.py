"""Losses over the targets that are there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from molgcn.ops.head_loss import Objective, loss_of
from molgcn.training_config import TrainingConfig

if TYPE_CHECKING:
    from molgcn.nn import MoleculeNet


class MaskedLoss:
    """The loss that `training.loss` names, over targets that are not missing.

    Args:
        config: `loss`, which is not auto, and `huber_delta`.
        fused: use this project's operator on CUDA.
    """

    def __init__(self, config: TrainingConfig, fused: bool) -> None:
        self.options = (config.loss, config.huber_delta)
        self.fused = fused

    def objective(self, target: Tensor, mean: Tensor, std: Tensor) -> Objective:
        """What a model is to predict, for :meth:`molgcn.nn.MoleculeNet.loss`."""
        return Objective(target, mean, std, *self.options)

    def __call__(self, prediction: Tensor, target: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """The mean loss and float64 [2], sum and number of its terms; arguments as of :class:`molgcn.ops.head_loss.Objective`."""
        return loss_of(prediction, self.objective(target, mean, std), self.fused)

    def of_model(self, model: MoleculeNet, batch: Any, *taken: Tensor) -> tuple[Tensor, Tensor]:
        """The same of a model's predictions for a batch, in fewer operators where its backend has some."""
        return model.loss(batch, self.objective(*taken))
