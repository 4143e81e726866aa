"""Weights on which a candidate's accuracy can be judged.

Where an activation lies within a rounding of zero, relu sends it to either side and the exact gradients jump: at 28 layers by 1e-4 and more
for most weights. A candidate that rounds correctly is then as far from float64 as one that does not.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from molgcn.data import GraphBatch
from molgcn.nn import GCN

_ROOM = 3e-3  # of a column's deviation, on either side of zero


def steady_model(in_channels: int, hidden_channels: int, num_layers: int, norm: str | None, batch: GraphBatch) -> GCN:
    """A model whose biases keep the batch's activations from zero, and whose weights (Kaiming's) keep their scale.

    With PyG's initialisation 28 layers leave nothing of the molecules: outputs are the head's bias, whatever the layers compute.

    Chosen in float64 alone, before anything is compared: layer after layer each feature's bias is moved so that zero lies where
    :func:`zero_of` says. The signs of the head's weights and bias are such that it adds features up: where it takes one from another,
    little but their roundings is left.

    In deep layers of large batches few features have atoms on both sides: what relu does to single atoms there is for the operators' own
    tests to say.

    Args:
        in_channels: F.
        hidden_channels: H.
        num_layers: L.
        norm: None, batch or layer.
        batch: on the device that computes.
    """
    torch.manual_seed(0)
    model = GCN(in_channels, hidden_channels, num_layers, 1, backend="pyg", norm=norm, init="kaiming")  # type: ignore[arg-type]
    double = model.on_backend("pyg").double().to(batch.x.device)
    for module in double.norms if norm else double.convs[:-1]:
        module.register_forward_hook(_away_from_zero)
    double.head.register_forward_pre_hook(_without_cancelling)
    with torch.no_grad():
        double(_in_double(batch))
        for name, parameter in double.named_parameters():
            model.get_parameter(name).copy_(parameter)
    return model


def _away_from_zero(module: nn.Module, _: Any, z: Tensor) -> Tensor:
    """Moves the bias that was added last, and what it was added to."""
    bias = module.get_parameter("bias")
    moved = (bias - zero_of(z)).float().double()  # as the model's own weights are
    z = z + (moved - bias)
    bias.copy_(moved)
    return z


def _without_cancelling(head: nn.Module, inputs: tuple[Tensor]) -> None:
    weight, bias = head.parameters()
    weight.copy_(weight.abs() * torch.where(inputs[0].mean(dim=0) < 0, -1.0, 1.0))
    bias.copy_(bias.abs())


def zero_of(z: Tensor) -> Tensor:
    """Where each column's values are to be cut in two, away from all of them: [N, H] -> [H].

    In the middle of the widest gap between neighbouring values, less a tenth at either end, if it is wide enough that roundings, which
    grow from layer to layer, do not fill it. Else below all values, of every fourth column above them. Below a column that has only one.
    """
    tenth, deviation = len(z) // 10, z.std(dim=0)
    values = z.sort(dim=0).values
    inner = values[tenth : len(z) - tenth]
    widths = inner.diff(dim=0, append=inner[-1:])
    index = (widths / deviation * 1e9).round().argmax(dim=0)  # of equally wide ones the first, whatever roundings make of them
    width = widths.gather(0, index[None])[0]
    middle = inner.gather(0, index[None])[0] + width / 2
    outside = torch.where(torch.arange(z.shape[1], device=z.device) % 4 == 3, values[-1] + deviation / 10, values[0] - deviation / 10)
    alone = values[0] - values[0].abs().clamp(min=1.0)
    return torch.where(values[0] == values[-1], alone, torch.where(width > 2 * _ROOM * deviation, middle, outside))


def exact(model: GCN, batch: GraphBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """Outputs and gradients of their mean square in float64, in training mode.

    Args:
        model: whose weights are taken.
        batch: on the device that computes.

    Returns:
        - outputs: [B, T]
        - gradients: by parameter, less those without effect: biases that a batch norm takes out again, zero but for rounding
    """
    double = model.on_backend("pyg").double().to(batch.x.device)
    outputs = double(_in_double(batch))
    outputs.square().mean().backward()
    without_effect = {f"convs.{index}.bias" for index in range(len(model.norms))} if model.norm == "batch" else set()
    gradients = {}
    for name, parameter in double.named_parameters():
        if name not in without_effect:
            assert parameter.grad is not None
            gradients[name] = parameter.grad
    return outputs.detach(), gradients


def _in_double(batch: GraphBatch) -> GraphBatch:
    return GraphBatch(batch.x.double(), batch.ptr, batch.rowptr, batch.col, batch.targets)


def error(actual: Tensor | None, expected: Tensor) -> float:
    """Relative L2, infinite where it has no meaning."""
    assert actual is not None
    return ((actual.double() - expected).norm() / expected.norm()).nan_to_num(nan=math.inf).item()
