"""Sums a loss over batches on a GPU in one launch a batch, as training steps do."""

from __future__ import annotations

import ctypes

from torch import Tensor

from molgcn.cuda_runtime.launch import kernel


class _Parameters(ctypes.Structure):
    """`struct Parameters` of cuda/loss_sum.cu."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in ("batch", "sums", "finite"))


def add_loss(batch: Tensor, sums: Tensor, finite: Tensor) -> None:
    """Adds a batch's loss in place, and one to `finite` while the sum is a finite number, which it cannot become again.

    Args:
        batch: float64 [2], sum and number of its terms, as :func:`molgcn.ops.masked_loss.masked_loss` gives them.
        sums: float64 [2], of the batches so far.
        finite: int64 scalar, batches before the first whose loss is not finite.
    """
    parameters = _Parameters(*(tensor.data_ptr() for tensor in (batch, sums, finite)))
    kernel("loss_sum.cu", "add_loss", {}, batch.device).launch(1, 1, 0, parameters)
