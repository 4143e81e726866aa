"""From the states of atoms to those of molecules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

POOLS = ("mean", "sum", "max", "norm", "attention")
NORM_CONSTANT = 100.0  # by which "norm" divides sums, as Chemprop's NormAggregation

Reduce = Callable[[Tensor, Tensor, int], Tensor]


@dataclass(frozen=True)
class Reductions:
    """A backend's reductions of rows [N, C] in groups int64 [N], numbered from 0, to [B, C], and the softmax [N, 1] within each group."""

    mean: Reduce
    sum: Reduce
    max: Reduce
    softmax: Reduce

    def pool(self, name: str, h: Tensor, batch: Tensor, count: int, gate: nn.Module | None = None) -> Tensor:
        """Pool the states of atoms into those of `count` molecules.

        Args:
            name: one of :data:`POOLS`. "norm" is the sum divided by :data:`NORM_CONSTANT`, "attention" the sum weighted by a softmax.
            h: [N, C].
            batch: int64 [N], the molecule of every atom.
            count: molecules, B.
            gate: scores the atoms for "attention".

        Returns:
            [B, C].
        """
        if name == "attention":
            assert gate is not None
            return self.sum(self.softmax(gate(h), batch, count) * h, batch, count)
        if name == "norm":
            return self.sum(h, batch, count) / NORM_CONSTANT
        return {"mean": self.mean, "sum": self.sum, "max": self.max}[name](h, batch, count)
