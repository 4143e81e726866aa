"""Sums a loss over batches on a GPU in one launch a batch, as training steps do."""

from __future__ import annotations

from torch import Tensor

from molgcn.cuda_runtime.launch import kernel
from molgcn.cuda_runtime.structs import Header, fill

_HEADER = Header(
    "loss_sum_structs.h",
    Parameters=[
        ("const double*", "batch"),  # [2]: sum of the terms, above minus infinity, and their number
        ("double*", "sums"),  # [2]
        ("uint64*", "finite"),
    ],
)


def add_loss(batch: Tensor, sums: Tensor, finite: Tensor) -> None:
    """Adds a batch's loss in place, and one to `finite` while the sum is a finite number, which it cannot become again.

    Args:
        batch: float64 [2], sum and number of its terms, as :func:`molgcn.ops.head_loss.head_loss` gives them.
        sums: float64 [2], of the batches so far.
        finite: int64 scalar, batches before the first whose loss is not finite.
    """
    parameters = fill(_HEADER.ctype()(), {"batch": batch, "sums": sums, "finite": finite})
    kernel("loss_sum.cu", "add_loss", {}, batch.device).launch(1, 1, 0, parameters)
