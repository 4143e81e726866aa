"""The losses of tasks, over the targets that are not missing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional as F

from molgcn.config.training import TrainingConfig
from molgcn.ops.head_loss import Objective, loss_of, loss_terms
from molgcn.ops.masked_mean import Weighing, masked_mean, within_bounds
from molgcn.ops.precision import without_bfloat16

if TYPE_CHECKING:
    from molgcn.tasks.uncertain import UncertainRegression


class Loss(ABC):
    """Computes the mean loss over the known terms of a batch."""

    options: tuple[Any, ...]  # what it reads beside tensors; CUDA graphs of training steps are captured anew where it changes

    @abstractmethod
    def __call__(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Return the mean loss, and the sum and the number of its terms in float64 [2].

        Args:
            *args: the outputs of a network [B, O], and then the values of :meth:`.base.Task.for_loss`.
            **kwargs: the same by name.
        """

    def of_model(self, model: Any, batch: Any, *taken: Any) -> tuple[Tensor, Tensor]:
        """Return the loss of a model for a batch as :meth:`__call__` does, by fused operators where there are some."""
        return self(model(batch), *taken)


class MaskedLoss(Loss):
    """The loss of regression that `training.loss` names, which is not `auto`; with `fused` by this project's operator on CUDA."""

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

    def of_model(self, model: Any, batch: Any, *taken: Any) -> tuple[Tensor, Tensor]:
        """Return the loss of a model for a batch, which without weights and bounds the model's backend computes."""
        target, mean, std, *weighing = taken
        return self(model(batch), *taken) if weighing else model.loss(batch, self.objective(target, mean, std))


class TermsLoss(Loss):
    """The loss of regression with uncertainties, whose terms the task computes, by PyTorch's operators."""

    def __init__(self, task: UncertainRegression, config: TrainingConfig) -> None:
        self.options = (config.loss, config.evidential_regularization, config.quantile_alpha)
        self.task = task
        self.config = config

    def __call__(
        self, outputs: Tensor, target: Tensor, mean: Tensor, std: Tensor, weighing: Weighing | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return the mean loss and the sum and number of its terms for outputs [B, T * K]; see :meth:`MaskedLoss.__call__`."""
        known = ~target.isnan()
        standardised = torch.where(known, (target - mean) / std, 0.0)
        outputs = without_bfloat16(outputs).unflatten(1, (target.shape[1], -1))
        values = self.task.standardised(outputs)[..., 0]
        terms = within_bounds(self.task.terms(outputs, standardised, self.config), values, standardised, weighing)
        return masked_mean(terms, known, weighing)


class ClassLoss(Loss):
    r"""The negative log-likelihood of the true class (`bce` and `ce`), or its focal form, by PyTorch's functions.

    The focal loss (Lin et al., ICCV 2017) is :math:`-(1 - p)^\gamma \log p` with the probability :math:`p` of the true class. With
    `class_weights=balanced` a label of class c weighs :math:`1 / (C f_c)`, where :math:`f_c` is the share of that class among the training
    part's labels, so that the mean weight is 1. A label of a class that training lacks weighs 1.

    Args:
        config: gives `loss`, `focal_gamma` and `class_weights`.
    """

    def __init__(self, config: TrainingConfig) -> None:
        self.options = (config.loss, config.focal_gamma, config.class_weights)

    def __call__(self, outputs: Tensor, labels: Tensor, frequencies: Tensor, weighing: Weighing | None = None) -> tuple[Tensor, Tensor]:
        """Return the mean loss and the sum and number of its terms, float64 [2].

        Args:
            outputs: [B, T], the logits of class 1, or [B, T * C], each target's C logits.
            labels: [B, T], classes, NaN where missing.
            frequencies: [T, C], each class's share of the training part's labels.
            weighing: the weights of the labels, or None where all weigh the same.
        """
        outputs = without_bfloat16(outputs)
        name, gamma, weights = self.options
        known = ~labels.isnan()
        classes = torch.where(known, labels, 0.0)
        if outputs.shape == labels.shape:
            terms = F.binary_cross_entropy_with_logits(outputs, classes.to(outputs.dtype), reduction="none")
        else:
            logits = outputs.reshape(labels.numel(), -1)
            terms = F.cross_entropy(logits, classes.long().flatten(), reduction="none").view_as(labels)
        if name == "focal":
            wrong = -torch.expm1(-terms)  # 1 - p, kept above 0, where a power below 1 has no derivative
            terms = wrong.clamp(min=torch.finfo(terms.dtype).tiny) ** gamma * terms
        if weights == "balanced":
            balance = torch.where(frequencies > 0, 1 / (frequencies.shape[1] * frequencies), 1.0)
            terms = terms * balance.expand(len(labels), -1, -1).gather(2, classes.long()[..., None])[..., 0]
        return masked_mean(terms, known, weighing)


class MixedLoss(Loss):
    r"""The loss of several tasks at once, the mean over the known terms of all targets, :math:`\sum_i n_i L_i / \sum_i n_i`.

    Part :math:`i` has the loss :math:`L_i` and :math:`n_i` known terms. Its outputs, `sizes` of them, follow those of the part before.
    """

    def __init__(self, losses: Sequence[Loss], sizes: Sequence[int]) -> None:
        self.options = tuple(loss.options for loss in losses)
        self.losses = list(losses)
        self.sizes = list(sizes)

    def __call__(self, outputs: Tensor, *taken: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return the mean loss and the sum and number of its terms, float64 [2], for outputs [B, O] part by part and each part's labels."""
        given = zip(self.losses, outputs.split(self.sizes, dim=1), taken, strict=True)
        means, sums = zip(*(loss(one.contiguous(), *own) for loss, one, own in given), strict=True)
        total = torch.stack(sums).sum(0)
        shares = torch.stack(sums)[:, 1] / total[1].clamp(min=1)
        return (torch.stack(means) * shares.to(means[0].dtype)).sum(), total
