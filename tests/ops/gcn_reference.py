"""Graph convolutions in plain PyTorch, any dtype, differentiable any number of times."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from molgcn.ops.gcn_network import GcnCall
from molgcn.ops.philox import keep_mask


def gcn_reference(call: GcnCall) -> tuple[Tensor, Tensor]:
    """Return the pooled features and statistics of a call without head and objective."""
    x, network, parameters = call.graph.x, call.network, call.parameters
    source, target, weight = normalised_edges(call.graph.rowptr, call.graph.col, network.add_self_loops, x.dtype)
    means, variances = [], []
    h = x
    for layer in range(network.num_layers):
        pulled = torch.zeros_like(h).index_add(0, target, weight[:, None] * h[source])
        out = pulled @ parameters.weights[layer].T + parameters.biases[layer]
        if layer < network.num_layers - 1 or network.last_activation:
            if network.norm == "layer":
                out = F.layer_norm(out, out.shape[1:], parameters.norm_weights[layer], parameters.norm_biases[layer], network.eps)
            elif network.norm == "batch":
                mean, variance = parameters.running_means[layer].clone(), parameters.running_vars[layer].clone()
                affine = parameters.norm_weights[layer], parameters.norm_biases[layer]
                out = F.batch_norm(out, mean, variance, *affine, call.options.training, network.momentum, network.eps)
                means.append(mean)
                variances.append(variance)
            out = out.relu()
            if call.dropout_rate > 0:
                out = out * keep_mask(call.seed, layer, out.shape[0], out.shape[1], network.dropout) / (1 - network.dropout)
        h = out + h if network.residual and out.shape == h.shape else out
    statistics = torch.stack([*means, *variances]) if call.batch_statistics and means else x.new_empty(0, network.hidden_channels)
    return pool(h, call.graph.ptr, network.pool), statistics.view(2, -1, network.hidden_channels)


def normalised_edges(rowptr: Tensor, col: Tensor, add_self_loops: bool, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """Return the source, target and weight of every entry of D^-1/2 (A + I) D^-1/2, computed by the rules of PyG's `gcn_norm`.

    Args:
        rowptr: The first bond of each atom, int32 [N + 1].
        col: The source atom of each bond, int32 [E].
        add_self_loops: Whether I is added.
        dtype: The dtype of the weights.
    """
    nodes = torch.arange(rowptr.shape[0] - 1, device=col.device)
    source, target = col.long(), torch.repeat_interleave(nodes, torch.diff(rowptr), output_size=col.shape[0])
    if add_self_loops:
        bond = source != target
        source, target = torch.cat([source[bond], nodes]), torch.cat([target[bond], nodes])
    degree = torch.bincount(target, minlength=nodes.shape[0]).to(dtype)
    scale = torch.where(degree > 0, degree.rsqrt(), 0.0)
    return source, target, scale[source] * scale[target]


def pool(h: Tensor, ptr: Tensor, how: str) -> Tensor:
    """Return the mean, sum or max of each molecule's rows of h [N, H], as [B, H]; 0 for a molecule without atoms.

    Args:
        h: The atoms' rows [N, H].
        ptr: The first atom of each molecule, int32 [B + 1].
        how: "mean", "sum" or "max".
    """
    sizes = torch.diff(ptr).long()
    graph = torch.repeat_interleave(torch.arange(sizes.shape[0], device=h.device), sizes, output_size=h.shape[0])
    if how == "max":
        zeros = h.new_zeros(sizes.shape[0], h.shape[1])
        return zeros.scatter_reduce(0, graph[:, None].expand_as(h), h, "amax", include_self=False)
    total = h.new_zeros(sizes.shape[0], h.shape[1]).index_add(0, graph, h)
    return total / sizes.clamp(min=1)[:, None] if how == "mean" else total
