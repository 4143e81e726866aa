"""Sum a loss over batches on a GPU, with one launch per batch."""

from __future__ import annotations

from torch import Tensor

from molgcn.cuda_runtime.launch import kernel
from molgcn.cuda_runtime.structs import Header, fill

_HEADER = Header(
    "loss_sum_structs.h",
    Parameters=[
        ("const double*", "batch"),  # [2]: sum of the terms, which is never minus infinity, and their number
        ("double*", "sums"),  # [2]
        ("uint64*", "finite"),
    ],
)


def add_loss(batch: Tensor, sums: Tensor, finite: Tensor) -> None:
    """Add a batch's loss in place, and count the batch in `finite` if the sum is still finite.

    A sum that is not finite never becomes finite again.

    Args:
        batch: The sum and the number of the batch's terms, float64 [2]; :func:`molgcn.ops.head_loss.head_loss` returns them.
        sums: The sum and the number of the terms of all batches so far, float64 [2]. Changed in place.
        finite: The number of batches before the first whose loss is not finite, an int64 scalar. Changed in place.
    """
    parameters = fill(_HEADER.ctype()(), {"batch": batch, "sums": sums, "finite": finite})
    kernel("loss_sum.cu", "add_loss", {}, batch.device).launch(1, 1, 0, parameters)
