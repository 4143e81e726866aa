"""Norms over the real rows of a batch, which may be padded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from molgcn.nn.padding import without_padding
from molgcn.ops.running_statistics import copy_statistics


class BatchNorm(nn.BatchNorm1d):
    """A `torch.nn.BatchNorm1d` that can leave rows of padding out of its statistics.

    State dict and results are those of `torch.nn.BatchNorm1d`. A batch without real rows leaves the running statistics unchanged.

    Shapes:
        - **x:** [R, C], the padding's rows last
        - **count:** integer [] on the device of `x`, number of real rows, or None where all are real
        - **output:** [R, C]
    """

    def forward(self, x: Tensor, count: Tensor | None = None) -> Tensor:
        """Return the normalised rows. The padding's rows hold finite numbers without meaning.

        Raises:
            ValueError: for a single row in training, which has no variance, unless the batch is padded.
        """
        if not self.training or (count is None and x.shape[0] > 0):
            return super().forward(x)
        if count is None:  # no rows: the gradients of weight and bias are zeros, not None
            return x * self.weight + self.bias
        mean, variance = self._statistics(x, count)
        assert self.weight is not None
        return (x - mean) * (variance + self.eps).rsqrt() * self.weight + self.bias

    def _statistics(self, x: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance [C] over the real rows, and update the running statistics with them."""
        rows = count.clamp(min=1).to(x.dtype)
        mean = without_padding(x, count).sum(0) / rows
        variance = without_padding(x - mean, count).square().sum(0) / rows
        with torch.no_grad():
            assert self.running_mean is not None
            assert self.running_var is not None
            assert self.num_batches_tracked is not None
            assert self.momentum is not None
            momentum = self.momentum * (count > 0).to(self.running_mean.dtype)  # a batch without rows changes nothing
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
            self.running_var.lerp_((variance * rows / (rows - 1).clamp(min=1)).to(self.running_var.dtype), momentum)
            self.num_batches_tracked.add_(1)
        return mean, variance


NORMS = {"batch": BatchNorm, "layer": nn.LayerNorm}


def normalised(norm: nn.Module, x: Tensor, count: Tensor | None = None) -> Tensor:
    """Return `norm` of rows [R, C], of which the first `count` are real; all are real if `count` is None."""
    return norm(x) if count is None or not isinstance(norm, BatchNorm) else norm(x, count)


def take_statistics(norms: Sequence[Any], statistics: Tensor) -> None:
    """Write the running means and variances [2, K, C], which an operator has updated, into K batch norms, and count the batch."""
    buffers = [*(norm.running_mean for norm in norms), *(norm.running_var for norm in norms)]
    copy_statistics(buffers, [norm.num_batches_tracked for norm in norms], statistics)
