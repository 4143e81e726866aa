"""The reference implementation of `molgcn::aggregate`: plain PyTorch, any dtype, differentiable any number of times, O(E D) memory."""

from __future__ import annotations

import torch
from torch import Tensor

from molgcn.ops.aggregate import AggregateInputs


def aggregate_reference(inputs: AggregateInputs) -> Tensor:
    """Return what the operator `molgcn::aggregate` returns, computed by plain PyTorch."""
    x = inputs.x
    source, target = inputs.edge_index.flip(0) if inputs.reverse else inputs.edge_index
    messages = x[source]
    if inputs.edge_weight is not None:
        messages = messages * inputs.edge_weight.repeat_interleave(inputs.channels_per_weight, dim=1)
    out = x.new_zeros(inputs.num_dst, x.shape[1])
    if inputs.reduce == "max":
        return out.scatter_reduce(0, target[:, None].expand_as(messages), messages, "amax", include_self=False)
    out = out.index_add(0, target, messages)
    if inputs.reduce == "mean":
        out = out / target.bincount(minlength=inputs.num_dst).clamp(min=1)[:, None].to(x.dtype)
    return out if inputs.own_weight is None else torch.addcmul(out, x, inputs.own_weight)
