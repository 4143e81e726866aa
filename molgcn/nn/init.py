"""The rules by which weights [..., out, in] are drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from molgcn.nn.layers.base import LayerKind, LayerOptions


def glorot(weight: Tensor) -> Tensor:
    """Draw a weight uniformly from ±sqrt(6 / (in + out)), as PyG's layers do: Glorot and Bengio, AISTATS 2010, equation 16."""
    bound = math.sqrt(6.0 / (weight.shape[-2] + weight.shape[-1]))
    return nn.init.uniform_(weight, -bound, bound)


def kaiming(weight: Tensor) -> Tensor:
    """Draw a weight uniformly from ±sqrt(6 / in), which keeps the scale of activations through relu: He et al., ICCV 2015, equation 10."""
    bound = math.sqrt(6.0 / weight.shape[-1])
    return nn.init.uniform_(weight, -bound, bound)


INITIALISERS: dict[str, Callable[[Tensor], Tensor]] = {"glorot": glorot, "kaiming": kaiming}


class GlorotLinear(nn.Linear):
    """A linear map whose weight is drawn by :func:`glorot`, bit for bit as PyG's `Linear(weight_initializer="glorot")` draws it."""

    def reset_parameters(self) -> None:
        """Draw the weight by :func:`glorot` and the bias as torch's `Linear` draws it."""
        glorot(self.weight)
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features)
            nn.init.uniform_(self.bias, -bound, bound)


def draw_layer(kind: LayerKind, options: LayerOptions, init: str | None) -> Mapping[str, Tensor]:
    """Return the state dict of a layer with newly drawn weights, the same ones for all its implementations.

    `init` is the rule for the matrices and attention vectors [..., out, in], one of :data:`INITIALISERS`; biases are then 0. None draws all
    parameters as the layer itself does.
    """
    if init is None:
        return kind.reference(options).state_dict()
    with torch.random.fork_rng(devices=[]):
        layer = kind.reference(options)
    for name, parameter in layer.named_parameters():
        if name.rpartition(".")[2] == "bias":
            nn.init.zeros_(parameter)
        elif parameter.dim() > 1:
            INITIALISERS[init](parameter)
    return layer.state_dict()
