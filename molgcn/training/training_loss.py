"""Sum the training loss over batches and devices, and end a run in which it or a weight is no longer finite."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
from lightning import Trainer
from torch import Tensor
from torch._C._nn import flatten_dense_tensors  # at once, where a norm of each takes ten times as long

from molgcn.errors import UserError
from molgcn.ops.loss_sum import add_loss

if TYPE_CHECKING:
    from molgcn.training.module import MoleculeModule


class TrainingLoss:
    """Sums the training loss, and counts the batches before the first whose loss is not finite, without waiting for the device.

    Args:
        fused: use this project's kernel on a GPU, which is one launch per batch.
    """

    def __init__(self, fused: bool = False) -> None:
        self.fused = fused
        # float64 [2], the sum of the loss's terms and their number, always in the same tensor; None before the first batch
        self.sums: Tensor | None = None
        self.rates = [math.nan]  # the learning rates of the last batch before the sums were set and of each batch since
        self._loaded = (0.0, 0.0)
        self._finite: Tensor | int = 0
        self._total: Tensor | None = None  # the first of the sums

    def update(self, sums: Tensor) -> None:
        """Add a batch's sum and number of terms, float64 [2], and count the batch while the sum over all batches is finite."""
        if self.sums is None or self._total is None:
            self.sums = torch.tensor(self._loaded, dtype=torch.double, device=sums.device)
            self._total = self.sums[0]
            self._finite = torch.zeros((), dtype=torch.int64, device=sums.device) if sums.is_cuda else 0
        if sums.is_cuda and self.fused:
            add_loss(sums, self.sums, self._finite)  # type: ignore[arg-type]
            return
        self.sums.add_(sums)
        self._finite += (self._total if sums.is_cuda else self._total.item()) < math.inf  # no loss falls to minus infinity

    def compute_and_reset(self, strategy: Any) -> float:
        """Return the mean over everything added on every rank since the last call, and start anew; see :func:`mean_of_terms`."""
        loaded = torch.tensor(self._loaded, dtype=torch.double, device=strategy.root_device) if self.sums is None else self.sums
        mean = mean_of_terms(loaded, strategy)
        self.load(None)
        return mean

    def state(self) -> tuple[float, float]:
        """Return the sum and the number of terms as Python numbers."""
        if self.sums is None:
            return self._loaded
        total, count = self.sums.tolist()
        return total, count

    def load(self, state: tuple[float, float] | None) -> None:
        """Restore what :meth:`state` returned, which is finite; None starts anew."""
        self._loaded = state or (0.0, 0.0)
        if self.sums is not None:
            self.sums.zero_() if state is None else self.sums.copy_(torch.tensor(state, dtype=torch.double))
        del self.rates[:-1]
        self._finite *= 0

    def first_not_finite(self, strategy: Any) -> int | None:
        """Return the number, from 0, of the first batch whose loss was not finite on some rank; None where there is none.

        Every rank has to call this.
        """
        if self._total is None or strategy.reduce(self._total.clone(), reduce_op="sum").item() < math.inf:
            return None
        return int(strategy.reduce(torch.as_tensor(self._finite, device=self._total.device).clone(), reduce_op="min"))


def mean_of_terms(sums: Tensor, strategy: Any) -> float:
    """Return the mean of the terms of all ranks from the sum and number, float64 [2], of this one's; NaN where there are none.

    Every rank has to call this.
    """
    total, count = strategy.reduce(sums.clone(), reduce_op="sum").tolist()
    return total / count if count else math.nan


def check_loss(trainer: Trainer, module: MoleculeModule) -> None:
    """End the run where a loss since the sums were last read was not finite; every rank has to call this.

    The message names the step, its learning rate, remedies and the last good checkpoint.
    """
    loop, rates = trainer.fit_loop.epoch_loop, module.train_loss.rates
    if len(rates) == 1:  # no batch since
        return
    number = module.train_loss.first_not_finite(trainer.strategy)
    if number is not None:
        batch = loop.batch_idx - (len(rates) - 2 - number)
        raise _diverged(trainer, f"The training loss is not finite in {_place(trainer, module, batch)}", rates[number + 1])


def check_weights(trainer: Trainer, module: MoleculeModule, kept: Iterable[Tensor]) -> None:
    """End the run where a loss, or a weight or statistic that a checkpoint keeps, is not finite; every rank has to call this."""
    check_loss(trainer, module)
    alike: dict[torch.dtype, list[Tensor]] = {}
    for tensor in kept:
        if tensor.is_floating_point() and tensor.numel():
            alike.setdefault(tensor.dtype, []).append(tensor)
    extremes = [torch.stack(flatten_dense_tensors(tensors).aminmax()) for tensors in alike.values()]  # NaN where one is
    finite = all(bool(pair.isfinite().all()) for pair in extremes)
    if not trainer.strategy.reduce_boolean_decision(finite):
        batch = trainer.fit_loop.epoch_loop.batch_idx
        raise _diverged(trainer, f"The weights are not finite after {_place(trainer, module, batch)}", module.train_loss.rates[-1])


def _place(trainer: Trainer, module: MoleculeModule, batch: int) -> str:
    last, each = trainer.fit_loop.epoch_loop.batch_idx, module.config.training.accumulate_batches
    steps = math.ceil((last + 1) / each) if trainer.is_last_batch else (last + 1) // each  # of this epoch so far
    step = trainer.global_step - steps + batch // each + 1
    return f"optimiser step {step} (epoch {trainer.current_epoch + 1}, batch {batch + 1} of {trainer.num_training_batches})"


def _diverged(trainer: Trainer, what: str, rate: float) -> UserError:
    good = getattr(trainer.checkpoint_callback, "newest", None)
    go_on = "There was no checkpoint yet." if good is None else f"A new run can start from the last good weights with ckpt_path={good}."
    return UserError(
        f"{what}, taken at a learning rate of {rate:g}: the training has diverged. Lower optimizer.lr or set "
        f"training.gradient_clip_norm, look for outliers among the targets, or try a higher trainer.precision. {go_on}"
    )
