"""The interface of a prepared training step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from torch.optim import Optimizer

if TYPE_CHECKING:
    from molgcn.training.module import MoleculeModule
    from molgcn.training.steps.watch import Watch


class TrainingStep(Protocol):
    """Takes training steps that are prepared once and that Lightning does not see, with the results of plain steps bit for bit.

    Args:
        module: the module that is trained. :meth:`why_not` returns None for it.
        optimizer: the PyTorch optimiser, without Lightning's wrapper.

    Attributes:
        num_kernels: kernels that a step launches on a GPU; None until it is known, and on a CPU.
        watch: tells whether what the step was prepared for has changed.
    """

    num_kernels: int | None
    watch: Watch

    def __init__(self, module: MoleculeModule, optimizer: Optimizer) -> None: ...

    @staticmethod
    def why_not(module: MoleculeModule, optimizer: Optimizer, batch: Any) -> str | None:
        """Return why steps cannot be taken in this way in this run, in words; None where they can.

        What may change within a run is checked at every step instead.

        Args:
            module: the module, attached to its trainer, with its optimisers configured.
            optimizer: the PyTorch optimiser, without Lightning's wrapper.
            batch: a training batch.
        """

    def __call__(self, batch: Any, first: bool, last: bool) -> bool:
        """Take the step, or return False where it is to be taken plainly.

        Args:
            batch: a training batch.
            first: whether it is the first of the batches whose gradients go into one optimiser step.
            last: whether it is the last of them.
        """
