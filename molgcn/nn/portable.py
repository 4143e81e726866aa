"""The network in plain PyTorch operators, for other programs: no PyTorch Geometric, no operator of this project."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from molgcn.nn.gcn import GCN


class PortableGCN(nn.Module):
    r"""What a trained :class:`molgcn.nn.GCN` computes in evaluation mode, from tensors, in the targets' units.

    .. math:: H' = \mathrm{relu}(\mathrm{norm}(D^{-1/2} (A + I) D^{-1/2} H W + b)) \; (+ H)

    Existing self-loops are not doubled, duplicate bonds count twice. No shape but the number of molecules depends on values, so that the
    module can be exported with numbers of atoms, bonds and molecules left open.

    Args:
        model: the network; its weights are copied.
        target_mean: [T], float32, or float64 where targets need more digits.
        target_std: [T], likewise.

    Shapes:
        - **x:** float [N, F], atom features
        - **edge_index:** int64 [2, E], source and target of every bond, both directions present
        - **batch:** int64 [N], the molecule of every atom, from 0, without gaps
        - **output:** [B, T] in the dtype of `target_mean`, B = the largest number in `batch` + 1
    """

    def __init__(self, model: GCN, target_mean: Tensor, target_std: Tensor) -> None:
        super().__init__()
        self.add_self_loops, self.pool = model.add_self_loops, model.pool
        self.embed = copy.deepcopy(model.embed)
        self.linears = nn.ModuleList(_linear(conv) for conv in model.convs)
        self.norms = copy.deepcopy(model.norms)
        self.head = copy.deepcopy(model.head)
        self.options = [(model.layer_options(index)[0] is not None, *model.layer_options(index)[1:]) for index in range(model.num_layers)]
        self.register_buffer("target_mean", target_mean.detach().clone())
        self.register_buffer("target_std", target_std.detach().clone())
        self.eval()

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        """Predictions [B, T] in the targets' units."""
        source, target = edge_index[0], edge_index[1]
        weight, own = self._weights(source, target, x)
        h = x if self.embed is None else self.embed(x)
        for index, (linear, (normed, activated, residual)) in enumerate(zip(self.linears, self.options, strict=True)):
            out = torch.zeros_like(h).index_add(0, target, weight * h.index_select(0, source))
            out = linear(out + own * h if self.add_self_loops else out)
            if normed:
                out = self.norms[index](out)
            if activated:
                out = out.relu()
            h = out + h if residual else out
        return self.head(self._pooled(h, batch)) * self.target_std + self.target_mean

    def _weights(self, source: Tensor, target: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Of every bond [E, 1] and of every atom for itself [N, 1], as PyG's `gcn_norm` counts them."""
        counted = (source != target).to(x.dtype) if self.add_self_loops else torch.ones_like(source, dtype=x.dtype)
        degree = torch.zeros_like(x[:, 0]).index_add(0, target, counted) + (1.0 if self.add_self_loops else 0.0)
        scale = torch.where(degree > 0, degree.clamp(min=1.0).rsqrt(), torch.zeros_like(degree))
        weight = counted * scale.index_select(0, source) * scale.index_select(0, target)
        return weight[:, None], (scale * scale)[:, None]

    def _pooled(self, h: Tensor, batch: Tensor) -> Tensor:
        """Mean, sum or max over each molecule's atoms: [B, H]."""
        count: int = batch.max().item() + 1  # type: ignore[assignment]  # int() would make it a constant of the export
        torch._check(count >= 1)
        torch._check(count <= batch.shape[0])
        if self.pool == "max":
            place = batch[:, None].expand(-1, h.shape[1])
            return h.new_full((count, h.shape[1]), -torch.inf).scatter_reduce(0, place, h, "amax")
        total = h.new_zeros(count, h.shape[1]).index_add(0, batch, h)
        if self.pool == "sum":
            return total
        return total / h.new_zeros(count).index_add(0, batch, torch.ones_like(h[:, 0])).clamp(min=1.0)[:, None]


def _linear(conv: Any) -> nn.Linear:
    linear = nn.Linear(conv.lin.weight.shape[1], conv.lin.weight.shape[0], dtype=conv.lin.weight.dtype)
    linear.load_state_dict({"weight": conv.lin.weight, "bias": conv.bias})
    return linear
