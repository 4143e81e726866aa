"""Losses over the targets that are there."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from molgcn.config import TrainingConfig
from molgcn.data.batch import GraphBatch
from molgcn.nn import GCN, fused
from molgcn.ops.gcn_loss import gcn_loss
from molgcn.ops.gcn_stack_cuda import MAX_LAYERS, automatic
from molgcn.ops.gcn_stack_plan import MAX_HIDDEN
from molgcn.ops.linear_loss import linear_loss
from molgcn.ops.masked_loss import masked_loss, masked_loss_reference


class MaskedLoss:
    """The loss that `training.loss` names, over targets that are not missing.

    Args:
        config: `loss` and `huber_delta`.
        fused: use this project's operators where there are some: where dtypes are alike, on a CPU for a whole model's loss only.
    """

    def __init__(self, config: TrainingConfig, fused: bool) -> None:
        self.options = (config.loss, config.huber_delta)
        self.fused = fused

    def __call__(self, prediction: Tensor, target: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """The mean loss and float64 [2], sum and number of its terms; arguments as :func:`molgcn.ops.masked_loss.masked_loss`."""
        if prediction.dtype == torch.bfloat16:  # of a head under autocast
            prediction = prediction.float()
        takes = self.fused and prediction.is_cuda and prediction.dtype == torch.float32
        return (masked_loss if takes else masked_loss_reference)(prediction, target, mean, std, *self.options)

    def of_model(self, model: GCN, batch: Any, target: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """The same of a model's prediction, with its head or its last linear map in one operator where there is one."""
        if not self.fused:
            return self(model(batch), target, mean, std)
        if not batch.x.is_cuda:
            return self._on_cpu(model, batch, target, mean, std)
        linears = model.linears
        if linears is not None and len(linears) == 1 and whole_step(model, batch):
            head = (linears[0].weight, linears[0].bias)
            return gcn_loss(fused.stack_inputs(model, batch), *head, target, mean, std, *self.options)
        x, linear = model.readout(batch)
        if x.dtype != torch.float32 or torch.is_autocast_enabled("cuda"):
            return self(linear(x), target, mean, std)
        return linear_loss(x, linear.weight, linear.bias, target, mean, std, *self.options)

    def _on_cpu(self, model: GCN, batch: Any, target: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        pooled, linears = model.backend.pooled(model, batch), model.linears
        if linears is None or torch.is_autocast_enabled("cpu") or not pooled.dtype == target.dtype == mean.dtype:
            return self(model.head(pooled), target, mean, std)
        from molgcn.ops.head_loss import head_loss  # without the extension there are no pooled features

        weights, biases = zip(*((linear.weight, linear.bias) for linear in linears), strict=True)
        return head_loss(pooled, weights, biases, target, mean, std, *self.options)


def whole_step(model: GCN, batch: Any) -> bool:
    """Whether a model on CUDA computes its loss in the same launches as its layers: with strategy `stack`, in float32 and to train."""
    if model.backend is not fused or not isinstance(batch, GraphBatch) or torch.compiler.is_compiling():
        return False
    norm = model.norm if model.training or model.norm == "layer" else None
    stack = model.strategy == "stack" and model.hidden_channels <= MAX_HIDDEN and model.num_layers <= MAX_LAYERS and norm != "batch"
    stack = stack or (model.strategy == "auto" and automatic(norm, model.hidden_channels, model.num_layers) == "stack")
    wanted = torch.is_grad_enabled() and all(p.requires_grad and p.dtype == torch.float32 for p in model.parameters())
    plain = batch.x.dtype == torch.float32 and batch.num_graphs > 0 and not torch.is_autocast_enabled("cuda")
    return stack and wanted and plain


class LossSum:
    """A loss summed on the device, always at the same place, and read only when it is asked for."""

    def __init__(self) -> None:
        self.sums: Tensor | None = None
        self._loaded = (0.0, 0.0)

    def update(self, sums: Tensor) -> None:
        """Adds float64 [2], a batch's sum and number of terms."""
        if self.sums is None:
            self.sums = torch.tensor(self._loaded, dtype=torch.double, device=sums.device)
        self.sums += sums

    def compute_and_reset(self, strategy: Any) -> float:
        """The mean over everything added on every rank since the last call; NaN when there was nothing."""
        sums = self.sums if self.sums is not None else torch.tensor(self._loaded, dtype=torch.double, device=strategy.root_device)
        total, count = strategy.reduce(sums.clone(), reduce_op="sum").tolist()
        self.load(None)
        return total / count if count else math.nan

    def state(self) -> tuple[float, float]:
        """Both sums as numbers."""
        if self.sums is None:
            return self._loaded
        total, count = self.sums.tolist()
        return total, count

    def load(self, state: tuple[float, float] | None) -> None:
        """Continues from :meth:`state`."""
        self._loaded = state or (0.0, 0.0)
        if self.sums is not None:
            self.sums.copy_(torch.tensor(self._loaded, dtype=torch.double))
