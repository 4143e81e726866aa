"""Transform targets before a network learns them, and predictions back; standardising follows and is not part of this."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

_KNOTS = 129  # of the curve from values to normal quantiles


@dataclass(frozen=True)
class Transforms:
    """The transforms of T targets, `dataset.transforms`.

    `log10` is the logarithm to base 10. `quantile_normal` maps values to the quantiles of the normal distribution, by linear interpolation
    between 129 quantiles of the training part. Below its smallest and above its largest value it is constant. Both are monotonic.
    """

    # "standardize", which is no transform, "log10" or "quantile_normal" for each target; empty where no target has a transform
    names: Sequence[str] = ()

    @property
    def change(self) -> bool:
        return any(name != "standardize" for name in self.names)

    @property
    def fits(self) -> bool:
        """Whether any transform depends on the training part."""
        return "quantile_normal" in self.names

    def repeated(self, count: int) -> Transforms:
        """Return the transforms of T * `count` columns, `count` for each target."""
        return Transforms([name for name in self.names for _ in range(count)])

    def places(self, name: str) -> list[int]:
        return [place for place, one in enumerate(self.names) if one == name]

    def fit(self, targets: np.ndarray) -> Tensor:
        """Return the curves [T, 2, K] of known targets [M, T], in their dtype: K values and the normal quantiles to which they map."""
        return torch.from_numpy(np.stack([_curve(column[~np.isnan(column)]) for column in targets.T]).astype(targets.dtype))

    def shape(self) -> tuple[int, int, int]:
        return len(self.names), 2, _KNOTS

    def forward(self, values: Tensor, curves: Tensor | None = None) -> Tensor:
        """Transform targets [B, T] in their units by the curves of :meth:`fit`, where some depend on the training part; NaN stays NaN."""
        return self._by_column(values, curves, torch.log10, back=False)

    def inverse(self, values: Tensor, curves: Tensor | None = None) -> Tensor:
        """Transform values [B, T] back; see :meth:`forward`."""
        return self._by_column(values, curves, lambda column: torch.exp(column * math.log(10)), back=True)

    def _by_column(self, values: Tensor, curves: Tensor | None, log: Callable[[Tensor], Tensor], back: bool) -> Tensor:
        if not self.change:
            return values
        columns = list(values.unbind(dim=1))
        for place in self.places("log10"):
            columns[place] = log(columns[place])
        for place in self.places("quantile_normal"):
            assert curves is not None
            given, normal = curves[place].to(values.dtype).unbind()
            columns[place] = _interpolated(columns[place], *((normal, given) if back else (given, normal)))
        return torch.stack(columns, dim=1)


class Inverse(nn.Module):
    """A layer of an exported network that transforms values back into the targets' units; see :class:`Transforms`."""

    curves: Tensor | None

    def __init__(self, transforms: Transforms, curves: Tensor | None = None) -> None:
        super().__init__()
        self.transforms = transforms
        self.register_buffer("curves", None if curves is None else curves.detach().clone())

    def forward(self, values: Tensor) -> Tensor:
        return self.transforms.inverse(values, self.curves)


def _curve(known: np.ndarray) -> np.ndarray:
    """Return K sorted values and the normal quantiles of their ranks, float64 [2, K]; equal values share their mean rank."""
    ranks = np.linspace(0, 1, _KNOTS)
    values, of_value = np.unique(np.quantile(known.astype(np.float64), ranks), return_inverse=True)
    mean_ranks = np.bincount(of_value, ranks) / np.bincount(of_value)
    shares = (mean_ranks * (len(known) - 1) + 0.5) / len(known)  # never 0 or 1, whose quantiles are infinite
    curve = np.stack([values, torch.special.ndtri(torch.from_numpy(shares)).numpy()])
    return np.pad(curve, ((0, 0), (0, _KNOTS - len(values))), mode="edge")


def _interpolated(x: Tensor, xs: Tensor, ys: Tensor) -> Tensor:
    """Interpolate linearly between K points at x [B], by operators that ONNX has; the value is constant outside of the points."""
    x = torch.minimum(torch.maximum(x, xs[0]), xs[-1])
    place = (x[:, None] > xs[1:-1]).sum(dim=1)
    left, right = xs[place], xs[place + 1]
    share = torch.where(right > left, (x - left) / torch.where(right > left, right - left, 1.0), 0.0 * x)
    return ys[place] + share * (ys[place + 1] - ys[place])
