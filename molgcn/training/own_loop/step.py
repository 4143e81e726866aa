"""Training steps in a user's loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from molgcn.data.batch import GraphBatch
from molgcn.data.slot_batch import SlotBatch
from molgcn.errors import UserError
from molgcn.ops.precision import without_autocast
from molgcn.training.ema import ExponentialMovingAverage
from molgcn.training.optim import float32_rates
from molgcn.training.own_loop.loop import Loop
from molgcn.training.own_loop.loss import LoopLoss, ReadsBack
from molgcn.training.steps.captured import CapturedStep
from molgcn.training.steps.device_options import DeviceOptions, on_gpu
from molgcn.training.steps.graphs import ONE_AT_A_TIME

_MOST_SIZES = 8  # numbers of molecules for which a loss that takes no padded batch is captured
_MOST_CHANGES = 5  # changes without a replay in between, after which one line says what changes


class LoopStep(Loop):
    """Takes training steps, from CUDA graphs where it can; see :func:`molgcn.capture` for the arguments."""

    _captured: CapturedStep | None

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer | None,
        loss: LoopLoss,
        batches: Iterable[Any] | None,
        gradient_clip_norm: float | None,
        accumulate_batches: int,
        ema: ExponentialMovingAverage | None,
    ) -> None:
        super().__init__(model, batches)
        self.optimizer = optimizer
        self.loss = loss
        self.ema = ema
        self.accumulate_batches = accumulate_batches
        self.gradient_clip_norm = gradient_clip_norm
        self.rates_on_device = True  # whether the optimiser takes a learning rate on the device; found at its first step
        self._added = 0  # batches whose gradients wait for the optimiser
        self._tried_rates = False
        self._optimizer_reads: str | None = None  # by which operation the optimiser reads values on the host
        self._sizes: set[int] = set()
        self._share: dict[tuple[torch.dtype, torch.device], Tensor] = {}  # of a batch in the mean over those that add up

    def __call__(self, batch: Any, last: bool | None = None) -> Tensor:
        """Take the step of a batch, and return its mean loss, a scalar of its own.

        Args:
            batch: a :class:`molgcn.data.GraphBatch` or PyG's `Batch`, on any device.
            last: whether the optimiser steps after this batch. Default: after every `accumulate_batches`.

        Raises:
            UserError: for a batch without targets, or while another CUDA graph is being captured.
        """
        if self.optimizer is None and last is not None:
            raise UserError("last= says when the optimiser steps, but molgcn.capture was given no optimizer.")
        with ONE_AT_A_TIME:
            self.begin()
            torch.clear_autocast_cache()  # inside one long autocast, weights would stay as they were first cast
            if self.optimizer is None:
                first, last = all(parameter.grad is None for parameter in self.parameters()), False
            else:
                first, last = self._added == 0, self._added + 1 >= self.accumulate_batches if last is None else last
            loss = self._take(batch, first, last)
            self._added = 0 if last else self._added + 1
        return loss

    @property
    def accumulates(self) -> bool:
        """Whether an optimiser step may take the gradients of several batches."""
        return self.accumulate_batches > 1

    def static_form(self, batch: SlotBatch) -> GraphBatch:
        """Return a batch in a form of constant shape; see :meth:`molgcn.training.own_loop.loss.LoopLoss.static_form`."""
        return self.loss.static_form(batch)

    def add_gradients(self, batch: Any) -> Tensor:
        """Run forward, loss and backward, add the gradients of a batch to those of the parameters, and return its loss."""
        loss = self.loss(self.model, batch)
        key = loss.dtype, loss.device
        if key not in self._share:
            self._share[key] = torch.full_like(loss, 1 / self.accumulate_batches).detach()
        with without_autocast(loss.device.type):
            loss.backward(gradient=self._share[key])
        return loss.detach()

    def update_weights(self, optimizer: Any) -> None:
        """Clip the gradients, take one step of the optimiser and of the moving average, and drop the gradients."""
        if self.gradient_clip_norm is not None:
            clip_grad_norm_(self.model.parameters(), self.gradient_clip_norm)
        optimizer.step()
        self._drop_gradients()
        if self.ema is not None:
            self.ema.update(self.model)

    def relied_on(self) -> tuple[Sequence[Tensor], Any]:
        """Return the tensors of the loss, and what else a step takes as constant."""
        options = [self.loss.any_number, self.rates_on_device, self.gradient_clip_norm, 0 if self._slots is None else self._slots.made]
        return self.loss.tensors, [*options, *self.switches()]

    def why_not(self) -> str | None:
        """Return why steps cannot be captured now, in words; None where they can."""
        if (reason := super().why_not()) is not None:
            return reason
        if self.loss.reads_back is not None:
            return (
                f"the loss function reads values of tensors by {self.loss.reads_back}, which waits for the GPU; use torch.where in place "
                "of an index of booleans, or loss='mse', 'l1' or 'huber', which leave out targets that are NaN"
            )
        return None if self.optimizer is None else self._why_not_optimizer(self.optimizer)

    def _why_not_optimizer(self, optimizer: Optimizer) -> str | None:
        name = type(optimizer).__name__
        if self._optimizer_reads is not None:
            return f"{name} reads values of tensors by {self._optimizer_reads}, which waits for the GPU"
        for group in optimizer.param_groups:
            if group.get("capturable") or group.get("fused"):
                if on_gpu(group["lr"]) and not self.rates_on_device:
                    return f"{name} reads its learning rate on the host; give it as a number"
                continue
            option = next((option for option in ("fused", "capturable") if option in group), None)
            if option is not None:
                return f"{name} steps on the host; make it with {option}=True"
            return f"{name} has no option capturable; leave it out of molgcn.capture, and call its step() after each step"
        return None

    def _take(self, batch: Any, first: bool, last: bool) -> Tensor:
        if self._captured is None:
            if (reason := self.why_not()) is not None:
                self.say(reason)
                return self._take_plainly(self.as_it_is(batch), first, last)
            self._captured = CapturedStep(self, self.optimizer)
        placed = self.put(batch)
        if placed is None:
            return self._take_plainly(self.as_it_is(batch), first, last)
        if not self._too_many_sizes(placed) and self._captured(placed, first, last):
            return self._captured.result.clone()
        step, self._captured = self._captured, None  # if this raises an error, what a graph relies on may not exist
        loss = self._take_plainly(self.static_form(placed), first, last, captured=True)
        self._explain(step)
        return loss

    def _explain(self, step: CapturedStep) -> None:
        """Say why a step was taken plainly, if not as the first of a kind, and go on with graphs where nothing forbids it."""
        if (reason := self.why_not()) is not None:
            self.say(reason)
            return
        if step.watch.is_of(self.model):
            self._captured = step
        if step.watch.has_hooks():
            self.say("there are hooks on layers, weights or the optimiser, which a replay would not call")
        elif step.changes >= _MOST_CHANGES:
            once = "; with OneCycleLR give it cycle_momentum=False, or the optimiser molgcn.training.ClippedAdam"
            self.say(f"{step.changed} changes from step to step{once if step.changed == 'an option of the optimiser' else ''}")

    def _too_many_sizes(self, batch: SlotBatch) -> bool:
        """Return whether a batch has one more number of molecules than graphs are captured for."""
        if self.loss.any_number or batch.num_graphs in self._sizes:
            return False
        if len(self._sizes) < _MOST_SIZES:
            self._sizes.add(batch.num_graphs)
            return False
        self.say(
            f"batches have more than {_MOST_SIZES} different numbers of molecules, for each of which a loss that is one number is captured "
            "anew; let the loss function return one term per molecule, as reduction='none' does, or use loss='mse', 'l1' or 'huber'"
        )
        return True

    def _take_plainly(self, batch: Any, first: bool, last: bool, captured: bool = False) -> Tensor:
        """Take a step without a graph, `captured` tells whether later ones may have graphs, so that this one computes as they do."""
        if first and self.optimizer is not None:
            self._drop_gradients()
        loss = self.add_gradients(batch)
        if last and self.optimizer is not None and not captured:
            self.update_weights(self.optimizer)
        elif last and self.optimizer is not None:
            trial = nullcontext() if self._tried_rates else self._trying_rates(self.optimizer)
            with float32_rates(self.optimizer), trial:  # as a graph reads them
                self.update_weights(self.optimizer)
        return loss

    @contextmanager
    def _trying_rates(self, optimizer: Optimizer) -> Iterator[None]:
        """Find out by the step inside a `with` block whether the optimiser reads learning rates, or anything else, on the host."""
        options = DeviceOptions(optimizer, self.device, self.rates_on_device)
        options.write()
        with options.in_place(), ReadsBack() as mode:
            yield
        if mode.found is None:
            self._tried_rates = True
        elif self.rates_on_device:
            self.rates_on_device = False
        else:
            self._tried_rates, self._optimizer_reads = True, mode.found

    def _drop_gradients(self) -> None:
        assert self.optimizer is not None
        self.optimizer.zero_grad()
        for parameter in self.parameters():
            parameter.grad = None
