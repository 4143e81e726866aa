"""The training step by autograd and PyTorch's optimiser, which works in every run."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from molgcn.training.optim import float32_rates

if TYPE_CHECKING:
    from molgcn.training.module import MoleculeModule


def take_plain_step(module: MoleculeModule, batch: Any, last: bool) -> None:
    """Add a batch's gradients and, after the last batch of an accumulation, take an optimiser step that Lightning sees.

    Args:
        module: the module that is trained.
        batch: the batch.
        last: whether the batch is the last of an accumulation.
    """
    module.add_gradients(module.static_form(batch))
    if last:
        optimizer: Any = module.optimizers()
        with float32_rates(optimizer) if module.device.type == "cuda" else nullcontext():
            module.update_weights(optimizer)
