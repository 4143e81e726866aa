"""The reference implementation of `molgcn::gcn_conv`: plain PyTorch, any dtype, differentiable any number of times, slow."""

from __future__ import annotations

import torch
from torch import Tensor

from molgcn.ops.gcn_conv import ConvInputs


def gcn_conv_reference(inputs: ConvInputs) -> Tensor:
    """Return what :func:`molgcn.ops.gcn_conv` returns, computed by plain PyTorch."""
    x, num_nodes = inputs.x, inputs.x.shape[0]
    source, target = inputs.edge_index.flip(0) if inputs.reverse else inputs.edge_index
    weight = x.new_ones(source.shape[0]) if inputs.edge_weight is None else inputs.edge_weight
    if inputs.add_self_loops:
        nodes = torch.arange(num_nodes, device=x.device)
        loops, bonds = (source == target).nonzero()[:, 0], (source != target).nonzero()[:, 0]
        last = torch.full_like(nodes, -1).scatter_reduce(0, source[loops], loops, "amax")
        added = x.new_full((num_nodes,), inputs.loop_weight)
        own = torch.where(last < 0, added, torch.cat([weight, weight.new_zeros(1)])[last])
        source, target = torch.cat([source[bonds], nodes]), torch.cat([target[bonds], nodes])
        weight = torch.cat([weight[bonds], own])
    features = x if inputs.weight is None else x @ inputs.weight.T
    out = features.new_zeros(features.shape)
    if inputs.normalize:
        bonds = source != target
        others = x.new_zeros(num_nodes).index_add(0, target[bonds], weight[bonds])
        loops = x.new_zeros(num_nodes).index_add(0, target[~bonds], weight[~bonds])
        degree = others + loops
        safe = torch.where(degree == 0, 1.0, degree)
        scale = torch.where(degree == 0, 0.0, safe**-0.5)
        # This is loops / degree, written so that its gradient is exactly 0, not rounding error, at a node that has only self-loops
        has_loops = torch.bincount(target[~bonds], minlength=num_nodes) > 0
        own = torch.where(has_loops & (degree != 0), 1 - others / safe, 0.0)
        out = own[:, None] * features
        source, target, weight = source[bonds], target[bonds], weight[bonds]
        weight = scale[source] * weight * scale[target]
    out = out.index_add(0, target, weight[:, None] * features[source])
    return out if inputs.bias is None else out + inputs.bias
