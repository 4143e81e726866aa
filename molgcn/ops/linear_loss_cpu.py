"""`molgcn::linear_loss` on the CPU, by the C++ extension `molgcn._cpu`; imported for its registrations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

import molgcn._cpu as _cpu
from molgcn.ops.linear_loss import check, empty, empty_gradients
from molgcn.ops.masked_loss import LOSSES


def forward(
    x: Tensor, weight: Tensor, bias: Tensor, target: Tensor, mean: Tensor, std: Tensor, loss: str, delta: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, sums and the terms' slopes, as the operator gives them."""
    check(x, weight, bias=bias, target=target, mean=mean, std=std)
    outputs = value, sums, slopes = empty(x, weight)
    inputs = [tensor.contiguous() for tensor in (x, weight, bias, target, mean, std)]
    addresses = [tensor.data_ptr() for tensor in (*inputs, slopes, sums, value)]
    _cpu.linear_loss_forward((*x.shape, weight.shape[0]), LOSSES.index(loss), delta, addresses)
    return outputs


def backward(grad_loss: Tensor, sums: Tensor, slopes: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of x, weight and bias."""
    x, weight = x.contiguous(), weight.contiguous()
    gradients = empty_gradients(grad_loss, sums, slopes, x, weight)
    backward_into(gradients, grad_loss, sums, slopes, x, weight)
    return gradients


def backward_into(gradients: Sequence[Tensor], grad_loss: Tensor, sums: Tensor, slopes: Tensor, x: Tensor, weight: Tensor) -> None:
    """Writes them; everything is contiguous."""
    addresses = [tensor.data_ptr() for tensor in (x, weight, slopes, sums, grad_loss, *gradients)]
    _cpu.linear_loss_backward((*x.shape, weight.shape[0]), addresses)


torch.library.impl("molgcn::linear_loss", "CPU", forward)
torch.library.impl("molgcn::linear_loss_backward", "CPU", backward)
