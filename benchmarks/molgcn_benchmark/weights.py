"""Make weights with which a candidate's accuracy can be judged.

If an activation lies within a rounding error of zero, relu may send it to either side and the exact gradients jump, at 28 layers by 1e-4
and more for most weights. A candidate that rounds correctly is then as far from float64 as one that does not.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from molgcn.data import GraphBatch
from molgcn.nn import GCN

_ROOM = 3e-3  # distance from zero on either side, relative to a column's deviation


def steady_model(in_channels: int, hidden_channels: int, num_layers: int, norm: str | None, batch: GraphBatch) -> GCN:
    """Return a model whose biases keep the batch's activations away from zero, and whose weights (Kaiming's) keep their scale.

    With PyG's initialisation the molecules have no visible effect after 28 layers: outputs are the head's bias, whatever the layers
    compute.

    The biases are chosen in float64, before anything is compared. Layer after layer, each feature's bias is moved so that zero lies where
    :func:`zero_of` says. The head's weights and bias have signs with which it adds features up. A difference of features would leave
    little but their rounding errors.

    In deep layers of large batches few features have atoms on both sides of zero. The operators' own tests check what relu does to single
    atoms there.

    Args:
        in_channels: features per atom, F.
        hidden_channels: width, H.
        num_layers: number of layers, L.
        norm: None, "batch" or "layer".
        batch: the batch, on the device that computes.
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
    """Move the bias of a layer, and return its output with the moved bias."""
    bias = module.get_parameter("bias")
    moved = (bias - zero_of(z)).float().double()  # rounded to float32 like the model's own weights
    z = z + (moved - bias)
    bias.copy_(moved)
    return z


def _without_cancelling(head: nn.Module, inputs: tuple[Tensor]) -> None:
    weight, bias = head.parameters()
    weight.copy_(weight.abs() * torch.where(inputs[0].mean(dim=0) < 0, -1.0, 1.0))
    bias.copy_(bias.abs())


def zero_of(z: Tensor) -> Tensor:
    """Return for each column of z [N, H] the value [H] that is to become zero, far from all values of the column.

    It is the middle of the widest gap between neighbouring values, a tenth at either end left out, if that gap is wide enough that
    rounding errors, which grow from layer to layer, do not fill it. Otherwise it lies below all values, or above them in every fourth
    column. A column with a single value gets one below it.
    """
    tenth, deviation = len(z) // 10, z.std(dim=0)
    values = z.sort(dim=0).values
    inner = values[tenth : len(z) - tenth]
    widths = inner.diff(dim=0, append=inner[-1:])
    index = (widths / deviation * 1e9).round().argmax(dim=0)  # the first of equally wide gaps, whatever their rounding errors
    width = widths.gather(0, index[None])[0]
    middle = inner.gather(0, index[None])[0] + width / 2
    outside = torch.where(torch.arange(z.shape[1], device=z.device) % 4 == 3, values[-1] + deviation / 10, values[0] - deviation / 10)
    alone = values[0] - values[0].abs().clamp(min=1.0)
    return torch.where(values[0] == values[-1], alone, torch.where(width > 2 * _ROOM * deviation, middle, outside))


def exact(model: GCN, batch: GraphBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the outputs and the gradients of their mean square in float64, in training mode.

    Args:
        model: the model whose weights are taken.
        batch: the batch, on the device that computes.

    Returns:
        - the outputs [B, T]
        - the gradients by name of the parameter, without biases that a batch norm cancels, whose gradients are zero but for rounding
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
    """Return the relative L2 error, which is infinite where it has no meaning."""
    assert actual is not None
    return ((actual.double() - expected).norm() / expected.norm()).nan_to_num(nan=math.inf).item()
