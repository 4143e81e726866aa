"""What GAT and GATv2 share: the attributes of added self-loops, the seed of dropout, and the steps after the attention."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from molgcn.nn.any_graph.base import AnyGraphConv, why_not_graph, why_not_rows
from molgcn.ops.aggregate import aggregate
from molgcn.ops.philox import dropout_seed
from molgcn.ops.precision import without_autocast

_FILLS = ("mean", "add", "sum")


class AttentionConv(AnyGraphConv):
    """Base of the fused attention layers."""

    def _why_not_inputs(self, *args: Any, **kwargs: Any) -> str | None:
        return self._why_not_attention(*args, **kwargs)

    def _why_not_attention(
        self, x: Any, edge_index: Any, edge_attr: Any = None, size: Any = None, return_attention_weights: Any = None
    ) -> str | None:
        if return_attention_weights is not None:
            return "the attention weights are to be returned"
        if reason := why_not_graph(x, edge_index):
            return reason
        pair = not isinstance(x, Tensor)
        if self.flow == "target_to_source" and (pair or not isinstance(self.in_channels, int)):
            return "sources and targets differ, and flow is target_to_source"
        sources, targets = (x[0].shape[0], x[1].shape[0]) if pair else (x.shape[0], x.shape[0])
        if size is not None and tuple(size) != (sources, targets):
            return "size is not that of x"
        if edge_attr is None:
            return None
        if edge_attr.dim() == 1:
            edge_attr = edge_attr.view(-1, 1)
        if reason := why_not_rows("edge_attr", edge_attr, edge_index.device):
            return reason
        if edge_attr.shape[0] != edge_index.shape[1]:
            return "edge_attr has not a row an edge"
        if self.add_self_loops and isinstance(self.fill_value, str) and (self.fill_value not in _FILLS or targets > sources):
            return f"fill_value is {self.fill_value!r}" + " with more targets than sources" * (self.fill_value in _FILLS)
        return None

    def _num_loops(self, num_sources: int, num_targets: int) -> int:
        return min(num_sources, num_targets) if self.add_self_loops else 0

    def _attributes(self, edge_attr: Tensor, edge_index: Tensor, num_sources: int, num_loops: int) -> Tensor:
        """Return the edges' attributes [E + num_loops, D], with those of the added self-loops as PyG fills them in."""
        if edge_attr.dim() == 1:
            edge_attr = edge_attr.view(-1, 1)
        if num_loops == 0:
            return edge_attr
        fill = self.fill_value
        if isinstance(fill, str):
            loops = _filled(edge_attr, edge_index, num_sources, num_loops, fill == "mean")
        elif isinstance(fill, Tensor):
            loops = fill.to(edge_attr).expand(num_loops, edge_attr.shape[1])
        else:
            loops = edge_attr.new_full((num_loops, edge_attr.shape[1]), 1.0 if fill is None else fill)
        return torch.cat([edge_attr, loops])

    def _drop(self, device: torch.device) -> tuple[Tensor | None, float]:
        """Return the seed of dropout, drawn by PyTorch's generator, and its rate."""
        rate = float(self.dropout) if self.training else 0.0
        return (dropout_seed(device, rate) if rate > 0 else None), rate

    def _finished(self, out: Tensor, x: Any) -> Tensor:
        """Return the heads side by side, or their mean, with residual and bias."""
        if not self.concat:
            out = out.view(-1, self.heads, self.out_channels).mean(dim=1)
        if self.res is not None:
            out = out + self.res(x if isinstance(x, Tensor) else x[1])
        return out if self.bias is None else out + self.bias


def folded(weight: Tensor, att: Tensor) -> Tensor:
    """Return the weights [H, F] that give the scores att . (W x) of each head directly from x, for W [H * C, F] and att [1, H, C]."""
    _, heads, channels = att.shape
    with without_autocast(weight.device.type):
        return torch.bmm(att.view(heads, 1, channels), weight.view(heads, channels, -1)).squeeze(1)


def merged_linear(x: Tensor, *weights: Tensor) -> Tensor:
    """Return x times all weights side by side, padded with columns of zeros so that every row is aligned for vector loads."""
    spare = -sum(weight.shape[0] for weight in weights) % 4
    zeros = [weights[0].new_zeros(spare, x.shape[1])] if spare else []
    return F.linear(x, torch.cat([*weights, *zeros]))


def _filled(edge_attr: Tensor, edge_index: Tensor, num_sources: int, num_loops: int, mean: bool) -> Tensor:
    """Return the sum or mean of the attributes of each node's incoming edges, self-loops left out."""
    counted = (edge_index[0] != edge_index[1]).to(edge_attr)[:, None]
    rows = torch.cat([edge_attr * counted, counted], dim=1)
    sums = aggregate(rows.new_ones(num_sources, rows.shape[1]), edge_index, rows, num_nodes=num_loops)
    return sums[:, :-1] / sums[:, -1:].clamp(min=1) if mean else sums[:, :-1]
