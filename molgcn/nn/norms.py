"""Norms over the real rows of a batch, which may be padded."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from molgcn.errors import UserError
from molgcn.nn.padding import without_padding
from molgcn.ops.running_statistics import copy_statistics


class BatchNorm(nn.BatchNorm1d):
    """A `torch.nn.BatchNorm1d` that can leave rows of padding out of its statistics, and take them over the rows of several processes.

    State dict and results are those of `torch.nn.BatchNorm1d`. A batch without real rows leaves the running statistics unchanged.

    Attributes:
        of_all_processes: whether statistics in training are those of the rows of all processes of `torch.distributed`, each of which then
            has to call this norm as often. That takes two exchanges in forward and two in backward.

    Shapes:
        - **x:** [R, C], the padding's rows last
        - **count:** integer [] on the device of `x`, number of real rows, or None where all are real
        - **output:** [R, C]
    """

    of_all_processes = False

    def forward(self, x: Tensor, count: Tensor | None = None) -> Tensor:
        """Return the normalised rows. The padding's rows hold finite numbers without meaning.

        Raises:
            ValueError: for a single row in training, which has no variance, unless the batch is padded.
        """
        if not self.training or (count is None and x.shape[0] > 0 and not self.of_all_processes):
            return super().forward(x)
        if count is None and not self.of_all_processes:  # no rows: the gradients of weight and bias are zeros, not None
            return x * self.weight + self.bias
        mean, variance = self._statistics(x, count)
        assert self.weight is not None
        return (x - mean) * (variance + self.eps).rsqrt() * self.weight + self.bias

    def _statistics(self, x: Tensor, count: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return mean and variance [C] over the real rows, and update the running statistics with them."""
        assert self.running_mean is not None
        assert self.running_var is not None
        number = torch.tensor(x.shape[0], device=x.device) if count is None else count
        sums = without_padding(x, count).sum(0)
        if self.of_all_processes:
            both = _over_processes(torch.cat([sums.to(self.running_mean.dtype), number[None]]))
            sums, number = both[:-1], both[-1]
        rows = number.clamp(min=1).to(x.dtype)
        mean = sums / rows
        squares = without_padding(x - mean, count).square().sum(0)
        variance = (_over_processes(squares) if self.of_all_processes else squares) / rows
        with torch.no_grad():
            assert self.num_batches_tracked is not None
            momentum = 1 / (self.num_batches_tracked + 1) if self.momentum is None else self.momentum
            momentum = momentum * (number > 0).to(self.running_mean.dtype)  # a batch without rows changes nothing
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
            self.running_var.lerp_((variance * rows / (rows - 1).clamp(min=1)).to(self.running_var.dtype), momentum)
            self.num_batches_tracked.add_(1)
        return mean, variance


def _over_processes(sums: Tensor) -> Tensor:
    """Return the sums over all processes, whose gradients are summed over all processes too."""
    from torch.distributed.nn.functional import all_reduce

    return all_reduce(sums)


NORMS = {"batch": BatchNorm, "layer": nn.LayerNorm}


def normalised(norm: nn.Module, x: Tensor, count: Tensor | None = None) -> Tensor:
    """Return `norm` of rows [R, C], of which the first `count` are real; all are real if `count` is None."""
    return norm(x) if count is None or not isinstance(norm, BatchNorm) else norm(x, count)


def take_statistics(norms: Sequence[Any], statistics: Tensor) -> None:
    """Write the running means and variances [2, K, C], which an operator has updated, into K batch norms, and count the batch."""
    buffers = [*(norm.running_mean for norm in norms), *(norm.running_var for norm in norms)]
    copy_statistics(buffers, [norm.num_batches_tracked for norm in norms], statistics)


def uneven_norms() -> UserError:
    """Return the error for norms that backend=fused cannot run as one operator."""
    return UserError(
        "backend=fused runs all layers as one operator. Each layer needs its bias, each norm a weight and a bias, each batch norm running "
        "statistics, and all norms the same eps and momentum. Use backend=pyg or backend=reference for other networks."
    )


def eps_and_momentum(norms: Sequence[Any]) -> tuple[float, float | None]:
    """Return the eps of all norms and the momentum of all batch norms, None if their statistics are means over all batches."""
    eps = {*map(attrgetter("eps"), norms)}
    momenta: set[Any] = {norm.momentum for norm in norms if isinstance(norm, BatchNorm)}
    if len(eps) > 1 or len(momenta) > 1:
        raise uneven_norms()
    return next(iter(eps), 1e-5), next(iter(momenta), 0.1)


def mean_over_batches(norms: Sequence[Any], before: Sequence[Tensor], of_batch: Tensor) -> Tensor:
    """Return running statistics that are means over all batches, as `momentum=None` asks for.

    Args:
        norms: K batch norms.
        before: 2 K tensors [C]: their running means, then their running variances.
        of_batch: The means and variances of the batch [2, K, C].
    """
    share = 1 / (torch.stack([norm.num_batches_tracked for norm in norms]) + 1)
    return torch.stack([*before]).view_as(of_batch).lerp(of_batch, share[:, None].to(of_batch.dtype))
