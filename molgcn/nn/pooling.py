"""Pool the states of atoms into the states of molecules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

POOLS = ("mean", "sum", "max", "norm", "attention")
NORM_CONSTANT = 100.0  # "norm" divides sums by this, as Chemprop's NormAggregation does

Reduce = Callable[[Tensor, Tensor, int], Tensor]


@dataclass(frozen=True)
class Reductions:
    """A backend's reductions over groups of rows.

    Each function takes rows [N, C], the group of every row (int64 [N], from 0) and the number of groups B. The mean, sum or maximum of each
    group, channel by channel, is [B, C], the softmax within each group [N, C].
    """

    mean: Reduce
    sum: Reduce
    max: Reduce
    softmax: Reduce

    def weights(self, h: Tensor, batch: Tensor, count: int, gate: nn.Module) -> Tensor:
        """Return the weights [N, 1] of the atoms in pooling by "attention"; those of a molecule add up to 1."""
        return self.softmax(gate(h), batch, count)

    def pool(self, name: str, h: Tensor, batch: Tensor, count: int, gate: nn.Module | None = None) -> Tensor:
        """Pool the states of atoms [N, C], which belong to molecules as `batch` says, into those of `count` molecules [B, C].

        "norm" is the sum divided by :data:`NORM_CONSTANT`, "attention" the sum weighted by a softmax of the scores of the atoms by `gate`.
        """
        if name == "attention":
            assert gate is not None
            return self.sum(self.weights(h, batch, count, gate) * h, batch, count)
        if name == "norm":
            return self.sum(h, batch, count) / NORM_CONSTANT
        return {"mean": self.mean, "sum": self.sum, "max": self.max}[name](h, batch, count)
