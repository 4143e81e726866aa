"""Weights on which a candidate's accuracy can be judged.

Where an activation lies within a rounding of zero, relu sends it to either side and the exact gradients jump: at 28 layers by 1e-4 and more
for most weights. A candidate that rounds correctly is then as far from float64 as one that does not.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from molgcn.benchmark.candidates import twin
from molgcn.data import GraphBatch
from molgcn.nn import GCN


def steady_model(in_channels: int, hidden_channels: int, num_layers: int, norm: str | None, batch: GraphBatch) -> GCN:
    """A model whose biases keep the batch's activations from zero, and whose weights (Kaiming's) keep their scale.

    With PyG's initialisation 28 layers leave nothing of the molecules: outputs are the head's bias, whatever the layers compute.

    Chosen in float64 alone, before anything is compared: layer after layer each feature's bias is moved so that zero lies in the middle of
    the widest gap between the values of its atoms. A tenth of the atoms and more stay on either side.

    Args:
        in_channels: F.
        hidden_channels: H.
        num_layers: L.
        norm: None, batch or layer.
        batch: on the device that computes.
    """
    torch.manual_seed(0)
    model = GCN(in_channels, hidden_channels, num_layers, 1, backend="pyg", norm=norm, init="kaiming")  # type: ignore[arg-type]
    double = twin(model, "pyg").double().to(batch.x.device)
    for module in double.norms if norm else double.convs[:-1]:
        module.register_forward_hook(_into_the_gap)
    with torch.no_grad():
        double(_in_double(batch))
        for name, parameter in double.named_parameters():
            model.get_parameter(name).copy_(parameter)
    return model


def _into_the_gap(module: nn.Module, _: Any, z: Tensor) -> Tensor:
    """Moves the bias that was added last, and what it was added to."""
    bias = module.get_parameter("bias")
    moved = (bias - widest_gap(z)).float().double()  # as the model's own weights are
    z = z + (moved - bias)
    bias.copy_(moved)
    return z


def widest_gap(z: Tensor) -> Tensor:
    """The middle of each column's widest gap between neighbouring values, less a tenth at either end: [N, H] -> [H].

    Below the values of a column that has only one.
    """
    tenth = len(z) // 10
    values = z.sort(dim=0).values[tenth : len(z) - tenth]
    width, index = values.diff(dim=0, append=values[-1:]).max(dim=0)
    low = values.gather(0, index[None])[0]
    return torch.where(width > 0, low + width / 2, low - low.abs().clamp(min=1.0))


def exact(model: GCN, batch: GraphBatch) -> tuple[Tensor, dict[str, Tensor]]:
    """Outputs and gradients of their sum in float64, in training mode.

    Args:
        model: whose weights are taken.
        batch: on the device that computes.

    Returns:
        - outputs: [B, T]
        - gradients: by parameter, less those without effect: biases that a batch norm takes out again, zero but for rounding
    """
    double = twin(model, "pyg").double().to(batch.x.device)
    outputs = double(_in_double(batch))
    outputs.sum().backward()
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
