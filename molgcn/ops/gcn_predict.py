r"""`molgcn::gcn_predict`: all layers, the pooling and a linear head, for inference; on CUDA one launch with strategy `stack`."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from molgcn.ops.gcn_stack import ARGUMENTS, StackInputs
from molgcn.ops.gcn_stack_check import check
from molgcn.ops.gcn_stack_cuda import predict
from molgcn.ops.transforms import refuse_transforms

torch.library.define(
    "molgcn::gcn_predict",
    f"(Tensor head_weight, Tensor head_bias, {ARGUMENTS}) -> Tensor predictions",
    tags=(torch.Tag.pt2_compliant_tag,),
)


def gcn_predict(inputs: StackInputs, head_weight: Tensor, head_bias: Tensor) -> Tensor:
    r"""Predictions :math:`p W^T + b` of the pooled molecules :math:`p` that :func:`molgcn.ops.gcn_stack.gcn_stack` gives.

    Args:
        inputs: of inference: `save_for_backward` is False, and no norm takes the batch's statistics.
        head_weight: [T, H], :math:`W`, of the inputs' dtype and device, as
        head_bias: [T], :math:`b`.

    Returns:
        [B, T], without a derivative.

    Raises:
        ValueError: for tensors that do not fit, as :func:`molgcn.ops.gcn_stack.gcn_stack`, or inputs that are not of inference.
    """
    refuse_transforms()
    return torch.ops.molgcn.gcn_predict.default(head_weight, head_bias, *inputs)


def _check_head(head_weight: Tensor, head_bias: Tensor, inputs: StackInputs) -> None:
    if inputs.save_for_backward or inputs.batch_statistics:
        raise ValueError("gcn_predict is for inference; use gcn_stack with save_for_backward=True or the statistics of a batch")
    shapes = [tuple(head_weight.shape), tuple(head_bias.shape)]
    if head_weight.dim() != 2 or shapes != [(head_weight.shape[0], inputs.hidden_channels), head_weight.shape[:1]]:
        raise ValueError(f"gcn_predict: expected head_weight of shape [T, {inputs.hidden_channels}] and head_bias [T], got {shapes}")
    for tensor in (head_weight, head_bias):
        if tensor.dtype != inputs.x.dtype or tensor.device != inputs.x.device:
            raise ValueError(
                f"gcn_predict: expected the head in {inputs.x.dtype} on {inputs.x.device}, got {tensor.dtype} on {tensor.device}"
            )


def _on_cpu(head_weight: Tensor, head_bias: Tensor, *args: Any) -> Tensor:
    pooled = torch.ops.molgcn.gcn_stack.default(*args)[0]
    _check_head(head_weight, head_bias, StackInputs(*args))
    with torch.autocast("cpu", enabled=False):
        return F.linear(pooled, head_weight, head_bias)


def _on_cuda(head_weight: Tensor, head_bias: Tensor, *args: Any) -> Tensor:
    inputs = StackInputs(*args)
    check(inputs)
    _check_head(head_weight, head_bias, inputs)
    return predict(head_weight, head_bias, *args)


@torch.library.register_fake("molgcn::gcn_predict")
def _fake(head_weight: Tensor, head_bias: Tensor, *args: Any) -> Tensor:
    inputs = StackInputs(*args)
    return inputs.x.new_empty(inputs.num_graphs, head_weight.shape[0])


def _no_derivative(ctx: Any, *grads: Any) -> tuple:
    raise RuntimeError("gcn_predict has no derivative; use gcn_stack and the head")


torch.library.register_autograd("molgcn::gcn_predict", _no_derivative)
torch.library.impl("molgcn::gcn_predict", "CPU", _on_cpu)
torch.library.impl("molgcn::gcn_predict", "CUDA", _on_cuda)
