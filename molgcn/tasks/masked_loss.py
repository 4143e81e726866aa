"""Losses over the targets that are there."""

from __future__ import annotations

from torch import Tensor

from molgcn.config import TrainingConfig
from molgcn.nn import MoleculeNet, fused
from molgcn.ops.gcn_loss import gcn_loss, takes
from molgcn.ops.linear_loss import linear_loss
from molgcn.ops.masked_loss import masked_loss, masked_loss_reference


class MaskedLoss:
    """The loss that `training.loss` names, over targets that are not missing.

    Args:
        config: `loss` and `huber_delta`.
        fused: use this project's operator on CUDA.
    """

    def __init__(self, config: TrainingConfig, fused: bool) -> None:
        self.options = (config.loss, config.huber_delta)
        self.fused = fused

    def objective(self, target: Tensor, mean: Tensor, std: Tensor) -> Objective:
        """What a model is to predict, for :meth:`molgcn.nn.GCN.loss`."""
        return Objective(target, mean, std, *self.options)

    def __call__(self, prediction: Tensor, target: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """The mean loss and float64 [2], sum and number of its terms; arguments as :func:`molgcn.ops.masked_loss.masked_loss`."""
        if prediction.dtype == torch.bfloat16:  # of a head under autocast
            prediction = prediction.float()
        takes = self.fused and prediction.is_cuda and prediction.dtype == torch.float32
        return (masked_loss if takes else masked_loss_reference)(prediction, target, mean, std, *self.options)

    def of_model(self, model: MoleculeNet, batch: Any, target: Tensor, mean: Tensor, std: Tensor) -> tuple[Tensor, Tensor]:
        """The same of a model's prediction, with its head, or on CUDA the whole model, in one operator where there is one."""
        linears = model.linears
        heard = model._forward_hooks or model._forward_pre_hooks or model._backward_hooks or model._backward_pre_hooks
        if not self.fused or linears is None or heard or torch.is_autocast_enabled(batch.x.device.type):
            return self(model(batch), target, mean, std)
        inputs, last = fused.stack_inputs(model, batch), linears[-1]
        alike = inputs.x.dtype == target.dtype == mean.dtype
        if inputs.x.is_cuda and len(linears) == 1 and alike and takes(inputs):
            return gcn_loss(inputs, last.weight, last.bias, target, mean, std, *self.options)
        pooled = fused.pooled_from(model, inputs)
        if not alike or (pooled.is_cuda and pooled.dtype != torch.float32):
            return self(model.head(pooled), target, mean, std)
        if pooled.is_cuda:
            x = pooled if len(linears) == 1 else model.head[:-1](pooled)  # type: ignore[index]
            return linear_loss(x, last.weight, last.bias, target, mean, std, *self.options)
        from molgcn.ops.head_loss import head_loss  # without the extension there are no pooled features

        weights, biases = zip(*((linear.weight, linear.bias) for linear in linears), strict=True)
        return head_loss(pooled, weights, biases, target, mean, std, *self.options)
