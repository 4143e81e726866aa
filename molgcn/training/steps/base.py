"""What every way to take training steps offers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from torch.optim import Optimizer

if TYPE_CHECKING:
    from molgcn.training.regressor import MoleculeRegressor
    from molgcn.training.steps.watch import Watch


class TrainingStep(Protocol):
    """Takes steps that are prepared once, behind Lightning's back, and gives the bits of a plain step.

    Args:
        module: whose step it is, where :meth:`why_not` has no objection.
        optimizer: PyTorch's own.

    Attributes:
        num_kernels: kernels that a step launches on a GPU; None until it is known, and on a CPU.
        watch: looks at what the step was prepared for.
    """

    num_kernels: int | None
    watch: Watch

    def __init__(self, module: MoleculeRegressor, optimizer: Optimizer) -> None: ...

    @staticmethod
    def why_not(module: MoleculeRegressor, optimizer: Optimizer, batch: Any) -> str | None:
        """Return why steps cannot be taken in this way in this run, in words; None where they can.

        What may change within a run is looked at in every step instead.

        Args:
            module: attached to its trainer, optimisers configured.
            optimizer: PyTorch's own.
            batch: a training batch.
        """

    def __call__(self, batch: Any, first: bool, last: bool) -> bool:
        """Take the step, or return False where it is to be taken plainly.

        Args:
            batch: a training batch.
            first: whether it is the first of the batches whose gradients go into one optimiser step.
            last: whether it is the last of them.
        """
