"""The reference implementation of `molgcn::attention`: plain PyTorch, any dtype, differentiable any number of times, slow."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from molgcn.ops.attention import AttentionInputs
from molgcn.ops.philox import keep_mask


def attention_reference(inputs: AttentionInputs) -> Tensor:
    """Return what :func:`molgcn.ops.attention` returns, computed by plain PyTorch."""
    heads, channels, width, num_targets = inputs.heads, inputs.channels, inputs.width, inputs.num_targets
    source, target, index = _entries(inputs)
    first = inputs.target_offset
    x, scores = inputs.source[:, :width], inputs.source[:, width:first]
    targets = inputs.source[:, first : first + inputs.num_scores] if inputs.targets is None else inputs.targets
    pre = (scores if inputs.att is None else x)[source] + targets[target]
    if inputs.edges is not None:
        pre = pre + inputs.edges[index]
    score = F.leaky_relu(pre, inputs.negative_slope)
    if inputs.att is not None:
        score = (score.view(-1, heads, channels) * inputs.att).sum(-1)
    rows = target[:, None].expand(-1, heads)
    largest = score.new_zeros(num_targets, heads).scatter_reduce(0, rows, score.detach(), "amax", include_self=False)
    weight = torch.exp(score - largest[target])
    total = score.new_zeros(num_targets, heads).index_add(0, target, weight)
    weight = weight / total[target]
    if inputs.dropout > 0:
        assert inputs.seed is not None
        kept = keep_mask(inputs.seed, 0, inputs.num_entries, heads, inputs.dropout)[index]
        weight = weight * kept / (1 - inputs.dropout) if inputs.dropout < 1 else weight * 0.0
    messages = weight[:, :, None] * x.view(-1, heads, channels)[source]
    return x.new_zeros(num_targets, heads, channels).index_add(0, target, messages).view(num_targets, width)


def _entries(inputs: AttentionInputs) -> tuple[Tensor, Tensor, Tensor]:
    """Return the source, target and index of every edge and self-loop that counts."""
    source, target = inputs.edge_index.flip(0) if inputs.reverse else inputs.edge_index
    index = torch.arange(inputs.num_entries, device=source.device)
    if inputs.num_loops == 0:
        return source, target, index
    nodes = index[: inputs.num_loops]
    counts = torch.cat([source != target, torch.ones_like(nodes, dtype=torch.bool)])
    source, target = torch.cat([source, nodes])[counts], torch.cat([target, nodes])[counts]
    return source, target, index[counts]
