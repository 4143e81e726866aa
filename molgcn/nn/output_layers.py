"""The last modules of an exported network, which turn its outputs into predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn


class Rescale(nn.Module):
    """Turn standardised outputs [B, T] into values in the targets' units, by mean and standard deviation of each target [T].

    These are float32, or float64 where targets need more digits.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean.detach().clone())
        self.register_buffer("std", std.detach().clone())

    def forward(self, outputs: Tensor) -> Tensor:
        """Return values [B, T], in the wider dtype of `outputs` and `mean`."""
        return outputs * self.std + self.mean


class ClassProbabilities(nn.Module):
    """Turn outputs [B, T * C] into the probabilities of each target's C classes."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes

    def forward(self, outputs: Tensor) -> Tensor:
        return outputs.unflatten(1, (-1, self.num_classes)).softmax(-1).flatten(1)


class SideBySide(nn.Module):
    """Turn groups of outputs into predictions, each group by its own module; the groups stand one after the other.

    `sizes` are the numbers of outputs of the groups, and `order` has for each column of predictions its place among those of the modules.
    """

    order: Tensor

    def __init__(self, layers: Sequence[nn.Module], sizes: Sequence[int], order: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.sizes = list(sizes)
        self.register_buffer("order", torch.tensor(order))

    def forward(self, outputs: Tensor) -> Tensor:
        """Return predictions [B, P], in the widest dtype that a module gives."""
        given = [layer(one) for layer, one in zip(self.layers, outputs.split(self.sizes, dim=1), strict=True)]
        widest = torch.float64 if any(one.dtype == torch.float64 for one in given) else outputs.dtype
        return torch.cat([one.to(widest) for one in given], dim=1).index_select(1, self.order)


class TargetColumns(nn.Module):
    """Turn the outputs of each of the targets into its columns of predictions, by a function from [B, T, K] to [B, T, C]."""

    def __init__(self, columns: Callable[[Tensor], Tensor], num_targets: int) -> None:
        super().__init__()
        self.columns = columns
        self.num_targets = num_targets

    def forward(self, outputs: Tensor) -> Tensor:
        return self.columns(outputs.unflatten(1, (self.num_targets, -1))).flatten(1)
