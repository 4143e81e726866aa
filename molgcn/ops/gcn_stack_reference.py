"""The oracle of `molgcn::gcn_stack`: plain PyTorch in any dtype, differentiable as often as wanted, slow."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from molgcn.ops.gcn_stack import StackInputs
from molgcn.ops.philox import keep_mask


def gcn_stack_reference(inputs: StackInputs) -> tuple[Tensor, Tensor, Tensor]:
    """What :func:`molgcn.ops.gcn_stack` returns; same arguments."""
    x, num_layers = inputs.x, inputs.num_layers
    source, target, weight = normalised_edges(inputs.rowptr, inputs.col, inputs.add_self_loops, x.dtype)
    means, variances = [], []
    h = x
    for layer in range(num_layers):
        out = torch.zeros_like(h).index_add(0, target, weight[:, None] * h[source]) @ inputs.weights[layer].T + inputs.biases[layer]
        if layer < num_layers - 1 or inputs.last_activation:
            if inputs.norm == "layer":
                out = F.layer_norm(out, out.shape[1:], inputs.norm_weights[layer], inputs.norm_biases[layer], inputs.eps)
            elif inputs.norm == "batch":
                mean, variance = inputs.running_means[layer].clone(), inputs.running_vars[layer].clone()
                parameters = (inputs.norm_weights[layer], inputs.norm_biases[layer])
                out = F.batch_norm(out, mean, variance, *parameters, inputs.training, inputs.momentum, inputs.eps)
                means.append(mean)
                variances.append(variance)
            out = out.relu()
            if inputs.dropout_rate > 0:
                out = out * keep_mask(inputs.seed, layer, out.shape[0], out.shape[1], inputs.dropout) / (1 - inputs.dropout)
        h = out + h if inputs.residual and out.shape == h.shape else out
    none = x.new_empty(0, inputs.hidden_channels)
    statistics = (torch.stack(means), torch.stack(variances)) if inputs.batch_statistics and means else (none, none)
    return pool(h, inputs.ptr, inputs.pool), *statistics


def normalised_edges(rowptr: Tensor, col: Tensor, add_self_loops: bool, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Source, target and weight of the entries of D^-1/2 (A + I) D^-1/2, as PyG's `gcn_norm` counts them."""
    nodes = torch.arange(rowptr.shape[0] - 1, device=col.device)
    source, target = col.long(), torch.repeat_interleave(nodes, torch.diff(rowptr), output_size=col.shape[0])
    if add_self_loops:
        bond = source != target
        source, target = torch.cat([source[bond], nodes]), torch.cat([target[bond], nodes])
    degree = torch.bincount(target, minlength=nodes.shape[0]).to(dtype)
    scale = torch.where(degree > 0, degree.rsqrt(), 0.0)
    return source, target, scale[source] * scale[target]


def pool(h: Tensor, ptr: Tensor, how: str) -> Tensor:
    """Mean, sum or max of each molecule's rows of h [N, H]: [B, H]; 0 for a molecule without atoms."""
    sizes = torch.diff(ptr).long()
    graph = torch.repeat_interleave(torch.arange(sizes.shape[0], device=h.device), sizes, output_size=h.shape[0])
    if how == "max":
        zeros = h.new_zeros(sizes.shape[0], h.shape[1])
        return zeros.scatter_reduce(0, graph[:, None].expand_as(h), h, "amax", include_self=False)
    total = h.new_zeros(sizes.shape[0], h.shape[1]).index_add(0, graph, h)
    return total / sizes.clamp(min=1)[:, None] if how == "mean" else total
