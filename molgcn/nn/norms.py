"""Norms over the rows of a batch, of which a padded batch has more than are real."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from molgcn.nn.padding import without_padding


class BatchNorm(nn.BatchNorm1d):
    """PyTorch's `BatchNorm1d`, which can leave rows of padding out of its statistics.

    State dict and numbers are those of `torch.nn.BatchNorm1d`. Without any row there is nothing to normalise: the running statistics
    stay as they are.

    Shapes:
        - **x:** [R, C], the padding's rows last
        - **count:** integer [], the real rows on the device of `x`, or None where all are real
        - **output:** [R, C]
    """

    def forward(self, x: Tensor, count: Tensor | None = None) -> Tensor:
        """Return the normalised rows; those of the padding hold finite numbers without meaning.

        Raises:
            ValueError: in training for a single row, which has no variance, unless it is padded.
        """
        if not self.training or (count is None and x.shape[0] > 0):
            return super().forward(x)
        if count is None:
            return x
        mean, variance = self._statistics(x, count)
        assert self.weight is not None
        return (x - mean) * (variance + self.eps).rsqrt() * self.weight + self.bias

    def _statistics(self, x: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance [C] over the real rows, and take them into the running ones."""
        rows = count.clamp(min=1).to(x.dtype)
        mean = without_padding(x, count).sum(0) / rows
        variance = without_padding(x - mean, count).square().sum(0) / rows
        with torch.no_grad():
            assert self.running_mean is not None
            assert self.running_var is not None
            assert self.num_batches_tracked is not None
            assert self.momentum is not None
            momentum = self.momentum * (count > 0).to(self.running_mean.dtype)  # nothing is taken in of a batch without rows
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
            self.running_var.lerp_((variance * rows / (rows - 1).clamp(min=1)).to(self.running_var.dtype), momentum)
            self.num_batches_tracked.add_(1)
        return mean, variance


NORMS = {"batch": BatchNorm, "layer": nn.LayerNorm}


def normalised(norm: nn.Module, x: Tensor, count: Tensor | None = None) -> Tensor:
    """Return `norm` of rows [R, C], of which the first `count` are real; None where all are."""
    return norm(x) if count is None or not isinstance(norm, BatchNorm) else norm(x, count)
