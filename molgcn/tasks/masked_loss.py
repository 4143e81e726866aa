"""The losses of regression over the targets that are not missing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

from molgcn.config.training import TrainingConfig
from molgcn.ops.head_loss import Objective, loss_of, loss_terms
from molgcn.ops.masked_mean import Weighing, masked_mean, within_bounds
from molgcn.ops.precision import without_bfloat16

if TYPE_CHECKING:
    from molgcn.nn import MoleculeNet


class MaskedLoss:
    """The loss that `training.loss` names, over targets that are not missing.

    Args:
        config: gives `loss`, which is not `auto`, and `huber_delta`.
        fused: use this project's operator on CUDA.
    """

    def __init__(self, config: TrainingConfig, fused: bool) -> None:
        self.options = (config.loss, config.huber_delta)
        self.fused = fused

    def objective(self, target: Tensor, mean: Tensor, std: Tensor) -> Objective:
        """Return targets, their scaling and the loss's options, as :meth:`molgcn.nn.MoleculeNet.loss` takes them."""
        return Objective(target, mean, std, *self.options)

    def __call__(
        self, prediction: Tensor, target: Tensor, mean: Tensor, std: Tensor, weighing: Weighing | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the mean loss and the sum and number of its terms, float64 [2].

        Args:
            prediction: [B, T], standardised predictions.
            target: [B, T], targets before they are standardised, NaN where missing; see :class:`molgcn.ops.head_loss.Objective`.
            mean: [T], the mean by which each target is standardised.
            std: [T], the standard deviation by which each target is standardised.
            weighing: the targets' weights and bounds, or None where all weigh the same and none is a bound. With them PyTorch's operators
                compute the loss.
        """
        objective = self.objective(target, mean, std)
        if weighing is None:
            return loss_of(prediction, objective, self.fused)
        prediction = without_bfloat16(prediction)
        terms, known, targets = loss_terms(prediction, objective)
        return masked_mean(within_bounds(terms, prediction, targets, weighing), known, weighing)

    def of_model(self, model: MoleculeNet, batch: Any, *taken: Any) -> tuple[Tensor, Tensor]:
        """Return the loss of a model's predictions for a batch; see :meth:`__call__`.

        Without weights and bounds the model's backend computes it, by fused operators where it has some.
        """
        target, mean, std, *weighing = taken
        return self(model(batch), *taken) if weighing else model.loss(batch, self.objective(target, mean, std))
