"""Weights on which a candidate's accuracy can be judged.

Where an activation lies within a rounding of zero, relu sends it to either side and the exact gradients jump: at 28 layers by 1e-4 and more
for most weights. A candidate that rounds correctly is then as far from float64 as one that does not.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from molgcn.benchmark.candidates import twin
from molgcn.data import GraphBatch
from molgcn.nn import GCN

ROUNDING = 2.0**-22
_STEADY = 2e-5
_TRIES, _WAYS = 24, 4


def steady_model(in_channels: int, hidden_channels: int, num_layers: int, norm: str | None, batch: GraphBatch) -> GCN:
    """A model with PyG's initialisation, whose exact gradients hardly depend on roundings of the weights and the atoms' features.

    Chosen in float64 alone, before anything is compared: of the seeds 0, 1, ... the first whose gradients move by less than 2e-5
    (relative L2, the worst parameter) when every number is moved by up to 2^-22 of itself, in each of four ways, or the steadiest of 24.

    Args:
        in_channels: F.
        hidden_channels: H.
        num_layers: L.
        norm: None, batch or layer.
        batch: on the device that computes.
    """
    best, least = None, math.inf
    for seed in range(_TRIES):
        torch.manual_seed(seed)
        model = GCN(in_channels, hidden_channels, num_layers, 1, backend="pyg", norm=norm)  # type: ignore[arg-type]
        moved = _movement(model, batch, least)
        if best is None or moved < least:
            best, least = model, moved
        if least < _STEADY:
            break
    assert best is not None
    return best


def exact(model: GCN, batch: GraphBatch, rounding: float = 0.0, seed: int = 0) -> tuple[Tensor, dict[str, Tensor]]:
    """Outputs and gradients of their sum in float64, in training mode.

    Args:
        model: whose weights are taken.
        batch: on the device that computes.
        rounding: weights and features are moved by up to this part of themselves.
        seed: of the movements.

    Returns:
        - outputs: [B, T]
        - gradients: by parameter, less those without effect: biases that a batch norm takes out again, zero but for rounding
    """
    device = batch.x.device
    generator = torch.Generator(device).manual_seed(seed)

    def move(values: Tensor) -> Tensor:
        return values * (1.0 + rounding * (2.0 * torch.rand(values.shape, generator=generator, dtype=torch.double, device=device) - 1.0))

    double = twin(model, "pyg").double().to(device)
    with torch.no_grad():
        for parameter in double.parameters():
            parameter.copy_(move(parameter))
    outputs = double(GraphBatch(move(batch.x.double()), batch.ptr, batch.rowptr, batch.col, batch.targets))
    outputs.sum().backward()
    without_effect = {f"convs.{index}.bias" for index in range(len(model.norms))} if model.norm == "batch" else set()
    gradients = {}
    for name, parameter in double.named_parameters():
        if name not in without_effect:
            assert parameter.grad is not None
            gradients[name] = parameter.grad
    return outputs.detach(), gradients


def error(actual: Tensor | None, expected: Tensor) -> float:
    """Relative L2, infinite where it has no meaning."""
    assert actual is not None
    return ((actual.double() - expected).norm() / expected.norm()).nan_to_num(nan=math.inf).item()


def _movement(model: GCN, batch: GraphBatch, enough: float) -> float:
    """Of the ways, the one that moves gradients most; no further ones once it is `enough`."""
    _, gradients = exact(model, batch)
    most = 0.0
    for way in range(_WAYS):
        _, moved = exact(model, batch, ROUNDING, way)
        most = max(most, *(error(moved[name], gradient) for name, gradient in gradients.items()))
        if most >= enough:
            break
    return most
