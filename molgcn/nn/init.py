"""How weights [out, in] are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor, nn


def glorot(weight: Tensor) -> Tensor:
    """Uniform in ±sqrt(6 / (in + out)): Glorot and Bengio, AISTATS 2010, equation 16; what PyG's GCNConv uses."""
    bound = math.sqrt(6.0 / (weight.shape[0] + weight.shape[1]))
    return nn.init.uniform_(weight, -bound, bound)


def kaiming(weight: Tensor) -> Tensor:
    """Uniform in ±sqrt(6 / in): He et al., ICCV 2015, equation 10; keeps the scale of activations through relu."""
    bound = math.sqrt(6.0 / weight.shape[1])
    return nn.init.uniform_(weight, -bound, bound)


INITIALISERS: dict[str, Callable[[Tensor], Tensor]] = {"glorot": glorot, "kaiming": kaiming}
