"""What an exported network ends with: its outputs become predictions."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn


class Rescale(nn.Module):
    """Turn standardised outputs [B, T] into values in the targets' units.

    Args:
        mean: [T], float32, or float64 where targets need more digits.
        std: [T], likewise.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.register_buffer("mean", mean.detach().clone())
        self.register_buffer("std", std.detach().clone())

    def forward(self, outputs: Tensor) -> Tensor:
        """Return values [B, T], in the dtype of `mean` where that is the wider one."""
        return outputs * self.std + self.mean


class ClassProbabilities(nn.Module):
    """Turn outputs [B, T * C] into the probabilities of each target's C classes.

    Args:
        num_classes: C.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.num_classes = num_classes

    def forward(self, outputs: Tensor) -> Tensor:
        """Return probabilities [B, T * C], which sum to 1 over the classes of each target."""
        return outputs.unflatten(1, (-1, self.num_classes)).softmax(-1).flatten(1)


class SideBySide(nn.Module):
    """Turn groups of outputs into predictions by a layer each.

    Args:
        layers: one a group.
        sizes: outputs of each group, which stand one after the other.
        order: which column of the layers' predictions, one layer after the other, each column of predictions is.
    """

    order: Tensor

    def __init__(self, layers: Sequence[nn.Module], sizes: Sequence[int], order: Sequence[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.sizes = list(sizes)
        self.register_buffer("order", torch.tensor(order))

    def forward(self, outputs: Tensor) -> Tensor:
        """Return predictions [B, P], in the widest dtype of the layers'."""
        given = [layer(one) for layer, one in zip(self.layers, outputs.split(self.sizes, dim=1), strict=True)]
        widest = torch.float64 if any(one.dtype == torch.float64 for one in given) else outputs.dtype
        return torch.cat([one.to(widest) for one in given], dim=1).index_select(1, self.order)


class TargetColumns(nn.Module):
    """Turn the outputs of each target into its columns of predictions.

    Args:
        columns: of outputs [B, T, K] gives columns [B, T, C].
        num_targets: T.
    """

    def __init__(self, columns: Callable[[Tensor], Tensor], num_targets: int) -> None:
        super().__init__()
        self.columns = columns
        self.num_targets = num_targets

    def forward(self, outputs: Tensor) -> Tensor:
        """Return columns [B, T * C] of outputs [B, T * K]."""
        return self.columns(outputs.unflatten(1, (self.num_targets, -1))).flatten(1)
