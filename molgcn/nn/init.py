"""How weights [..., out, in] are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor, nn


def glorot(weight: Tensor) -> Tensor:
    """Uniform in ±sqrt(6 / (in + out)): Glorot and Bengio, AISTATS 2010, equation 16; what PyG's layers use."""
    bound = math.sqrt(6.0 / (weight.shape[-2] + weight.shape[-1]))
    return nn.init.uniform_(weight, -bound, bound)


def kaiming(weight: Tensor) -> Tensor:
    """Uniform in ±sqrt(6 / in): He et al., ICCV 2015, equation 10; keeps the scale of activations through relu."""
    bound = math.sqrt(6.0 / weight.shape[-1])
    return nn.init.uniform_(weight, -bound, bound)


INITIALISERS: dict[str, Callable[[Tensor], Tensor]] = {"glorot": glorot, "kaiming": kaiming}


class GlorotLinear(nn.Linear):
    """A linear map whose weight is drawn by :func:`glorot`: PyG's `Linear(weight_initializer="glorot")`, number by number."""

    def reset_parameters(self) -> None:
        """Draw the weight by :func:`glorot` and the bias as torch's `Linear` draws it."""
        glorot(self.weight)
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features)
            nn.init.uniform_(self.bias, -bound, bound)
