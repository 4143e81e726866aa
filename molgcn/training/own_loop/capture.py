"""The function `molgcn.capture`, and the predictions that it captures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from molgcn.errors import UserError, require
from molgcn.training.ema import ExponentialMovingAverage
from molgcn.training.own_loop.loop import Loop
from molgcn.training.own_loop.loss import Function, LoopLoss
from molgcn.training.own_loop.step import LoopStep
from molgcn.training.steps.captured import CapturedForward
from molgcn.training.steps.graphs import ONE_AT_A_TIME

LossName = Literal["mse", "l1", "huber"]


class LoopForward(Loop):
    """Computes a network's predictions without gradients, from CUDA graphs where it can; see :func:`molgcn.capture`."""

    _captured: CapturedForward | None
    _made_with: list[Any] | None = None

    def __call__(self, batch: Any) -> Tensor:
        """Return the predictions [B, T] for a :class:`molgcn.data.GraphBatch` or PyG's `Batch` of B molecules, on any device.

        Raises:
            UserError: while another CUDA graph is being captured.
        """
        with ONE_AT_A_TIME, torch.no_grad():
            self.begin()
            if self._captured is None or self._made_with != self.switches():
                if (reason := self.why_not()) is not None:
                    self.say(reason)
                    self._captured = None
                    return self.model(self.as_it_is(batch))
                self._captured, self._made_with = CapturedForward(self.model), self.switches()
            placed = self.put(batch)
            if placed is None:
                return self.model(self.as_it_is(batch))
            if self._captured.watch.has_hooks():
                self.say("there are hooks on layers or weights, which a replay would not call")
            forward, self._captured = self._captured, None  # if this raises an error, what a graph relies on may not exist
            predictions = forward(placed.slot.padded)[: placed.num_graphs]
            self._captured = forward
            return predictions


@overload
def capture(model: nn.Module, *, batches: Iterable[Any] | None = None) -> LoopForward: ...


@overload
def capture(
    model: nn.Module,
    optimizer: Optimizer | None = None,
    *,
    loss: LossName | Function,
    batches: Iterable[Any] | None = None,
    gradient_clip_norm: float | None = None,
    accumulate_batches: int = 1,
    ema: ExponentialMovingAverage | None = None,
) -> LoopStep: ...


def capture(
    model: nn.Module,
    optimizer: Optimizer | None = None,
    *,
    loss: LossName | Function | None = None,
    batches: Iterable[Any] | None = None,
    gradient_clip_norm: float | None = None,
    accumulate_batches: int = 1,
    ema: ExponentialMovingAverage | None = None,
) -> LoopForward | LoopStep:
    """Return a training step, or without a loss a forward pass, that replays CUDA graphs in a loop of your own.

    `step = molgcn.capture(model, optimizer, loss="mse")` takes a whole training step at each `loss = step(batch)`: forward, loss, backward,
    clipping, optimiser and moving average, and returns the loss. `forward = molgcn.capture(model)` returns predictions without gradients at
    each `forward(batch)`. Both take batches of any size, :class:`molgcn.data.GraphBatch` or PyG's `Batch`, on any device. The first calls
    run plainly, and so does what cannot be captured, such as calls on a CPU, with the same results; one line in the log says why.

    Between calls anything may change. Learning rates, also by a schedule, and the values of weights are read anew. After other changes
    (weights frozen, replaced or moved, modes, options, autocast, a batch larger than any before) the graphs are made anew.

    Args:
        model: a network of :mod:`molgcn.nn`.
        optimizer: an optimiser of PyTorch that was made with `fused=True` or `capturable=True`, or a
            :class:`molgcn.training.ClippedAdam`, which is the fastest. Without one the step adds gradients to those of the parameters, and
            any optimiser can step after it.
        loss: "mse", "l1" or "huber", which leave out targets that are NaN; or a function of predictions [B, T] and targets [B, T]. It
            returns a scalar, or one term per molecule, whose mean is taken. A scalar is captured anew for each number of molecules.
        batches: the batches that will come, so that they all fit from the start: a loader or a list. Those of a
            :class:`molgcn.data.loader.PackedLoader` on the same GPU are not copied.
        gradient_clip_norm: the largest norm of all gradients together; None for no clipping.
        accumulate_batches: number of batches whose mean gradient the optimiser takes. `step(batch, last=True)` ends such a sum earlier.
        ema: the moving average of the weights, which follows after each step.

    Raises:
        UserError: for an argument that does not fit.
    """
    if getattr(model, "outputs", None):
        raise UserError("molgcn.capture is for outputs of molecules, and the model has some of atoms or bonds. Call the model itself.")
    if loss is None:
        given = {"an optimizer": optimizer is not None, "gradient_clip_norm": gradient_clip_norm is not None, "ema": ema is not None}
        for name, is_given in (given | {"accumulate_batches": accumulate_batches != 1}).items():
            if is_given:
                raise UserError(f"molgcn.capture was given {name}, but no loss. Give loss='mse' or a function, or the model alone.")
        return LoopForward(model, batches)
    if optimizer is None and (gradient_clip_norm is not None or ema is not None):
        raise UserError("gradient_clip_norm and ema belong to the optimiser's step. Give molgcn.capture the optimizer, or leave them out.")
    if optimizer is not None and not isinstance(optimizer, Optimizer):
        raise UserError(f"optimizer is {type(optimizer).__name__}. Expected an optimiser of PyTorch, torch.optim.Optimizer.")
    if ema is not None and not isinstance(ema, ExponentialMovingAverage):
        raise UserError(
            f"ema is {type(ema).__name__}. Expected molgcn.training.ExponentialMovingAverage(model, decay); update others after each step."
        )
    require(gradient_clip_norm is None or gradient_clip_norm > 0, "gradient_clip_norm", gradient_clip_norm, "a number above 0, or None")
    require(accumulate_batches >= 1, "accumulate_batches", accumulate_batches, "at least 1")
    return LoopStep(model, optimizer, LoopLoss(loss), batches, gradient_clip_norm, accumulate_batches, ema)
