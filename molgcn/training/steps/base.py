"""The interface of a prepared training step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor

from molgcn.data.batch import GraphBatch

if TYPE_CHECKING:
    from molgcn.nn.molecule_net import MoleculeNet
    from molgcn.training.ema import ExponentialMovingAverage
    from molgcn.training.steps.watch import Watch


class TrainingStep(Protocol):
    """Takes training steps that are prepared once and that Lightning does not see, with the results of plain steps bit for bit."""

    num_kernels: int | None  # kernels that a step launches on a GPU; None until it is known, and on a CPU
    watch: Watch  # tells whether what the step was prepared for has changed

    def __call__(self, batch: Any, first: bool, last: bool) -> bool:
        """Take the step, or return False where it is to be taken plainly.

        `first` and `last` say where the batch is among those whose gradients go into one optimiser step.
        """


class Work(Protocol):
    """What a training step computes, in a run or in a loop of a user's own.

    Attributes:
        device: the device of its weights.
        accumulates: whether an optimiser step may take the gradients of several batches.
    """

    model: MoleculeNet  # the network that is trained
    ema: ExponentialMovingAverage | None  # the moving average of its weights, or None
    rates_on_device: bool  # whether the optimiser takes its learning rate as a tensor on the device

    @property
    def device(self) -> torch.device: ...

    @property
    def accumulates(self) -> bool: ...

    def static_form(self, batch: Any) -> GraphBatch:
        """Return a batch in a form of constant shape, the same object for all batches that a graph can take."""

    def add_gradients(self, batch: Any) -> Any:
        """Run forward, loss and backward for a batch in its static form, and add its gradients to those of the parameters."""

    def update_weights(self, optimizer: Any) -> None:
        """Clip the gradients, take one step of the optimiser and of the moving average, and drop the gradients."""

    def relied_on(self) -> tuple[Sequence[Tensor], Any]:
        """Return the tensors that a step reads beside the network's, and what else it takes as constant, such as options of the loss."""
