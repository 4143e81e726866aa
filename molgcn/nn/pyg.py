"""backend=pyg: PyTorch Geometric's own layers and pooling, the oracle and the baseline."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, global_add_pool, global_max_pool, global_mean_pool

from molgcn.ops.head_loss import Objective, loss_of

if TYPE_CHECKING:
    from molgcn.nn.gcn import GCN

name = "pyg"
_POOLS = {"mean": global_mean_pool, "sum": global_add_pool, "max": global_max_pool}


def conv(model: GCN, in_channels: int, out_channels: int) -> nn.Module:
    """`torch_geometric.nn.GCNConv`."""
    return GCNConv(in_channels, out_channels, add_self_loops=model.add_self_loops)


def pooled(model: GCN, batch: Any) -> Tensor:
    """All layers and the pooling as a PyG user writes them: [B, H]."""
    h = batch.x if model.embed is None else model.embed(batch.x)
    for index, layer in enumerate(model.convs):
        norm, activated, residual = model.layer_options(index)
        out = layer(h, batch.edge_index)
        if norm is not None:
            out = norm(out)
        if activated:
            out = F.dropout(out.relu(), model.dropout, model.training)
        h = out + h if residual else out
    return _POOLS[model.pool](h, batch.batch, batch.num_graphs)


def predictions(model: GCN, batch: Any) -> Tensor:
    """All layers, the pooling and the head: [B, T]."""
    return model.head(pooled(model, batch))


def loss(model: GCN, batch: Any, objective: Objective) -> tuple[Tensor, Tensor]:
    """The loss of :func:`predictions`, and float64 [2], sum and number of its terms."""
    return loss_of(predictions(model, batch), objective, fused=False)
