"""Layers are drawn by the rule that `model.init` names."""

import pytest
import torch

from molgcn.nn.init import INITIALISERS, draw_layer
from molgcn.nn.layers.base import LayerOptions
from molgcn.nn.registry import get_kind, layer_names


@pytest.mark.parametrize("name", layer_names())
@pytest.mark.parametrize("init", INITIALISERS)
def test_no_number_is_drawn_twice(name, init):
    kind = get_kind(name)
    options = LayerOptions(8, 8, None if kind.bonds == "never" else 3)
    torch.manual_seed(0)
    layers = [draw_layer(kind, options, init) for _ in range(4)]
    bounds = {"glorot": lambda weight: sum(weight.shape[-2:]), "kaiming": lambda weight: weight.shape[-1]}
    drawn = [(weight * bounds[init](weight) ** 0.5).flatten() for layer in layers for weight in layer.values() if weight.dim() > 1]
    numbers = torch.cat(drawn).mul(2**18).round()  # equal draws differ by rounding alone
    assert numbers.abs().max() <= 6**0.5 * 2**18 + 1
    assert len(numbers.unique()) > 0.99 * len(numbers)
