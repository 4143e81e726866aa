"""What is compared: this project's operator and PyTorch Geometric as written, with the normalisation hoisted, and compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from molgcn.data import GraphBatch
from molgcn.nn import GCN

CANDIDATES = ("fused", "pyg", "pyg_hoisted", "pyg_compiled")
Model = Callable[[Any], Tensor]


class HoistedGCN(nn.Module):
    """PyG's layers on a normalised adjacency that is computed once, outside of what is timed; for norm=None."""

    def __init__(self, model: GCN) -> None:
        super().__init__()
        from torch_geometric.nn import GCNConv, global_mean_pool

        widths = [model.in_channels] + [model.hidden_channels] * model.num_layers
        self.convs = nn.ModuleList(GCNConv(widths[i], widths[i + 1], normalize=False) for i in range(model.num_layers))
        self.head = nn.Linear(model.hidden_channels, model.out_channels)
        self.pool = global_mean_pool
        self.load_state_dict(model.state_dict())

    def forward(self, batch: Any) -> Tensor:
        """As :class:`molgcn.nn.GCN`; the batch brings `edge_weight` and its edges include the self-loops."""
        h = batch["x"]
        for index, conv in enumerate(self.convs):
            h = conv(h, batch["edge_index"], batch["edge_weight"])
            h = F.relu(h) if index < len(self.convs) - 1 else h
        return self.head(self.pool(h, batch["batch"], batch["targets"].shape[0]))


def hoisted(batch: GraphBatch) -> dict[str, Tensor]:
    """The batch with its normalised edges."""
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    edge_index, edge_weight = gcn_norm(batch.edge_index, None, batch.num_nodes, dtype=batch.x.dtype)
    return {"x": batch.x, "edge_index": edge_index, "edge_weight": edge_weight, "batch": batch.batch, "targets": batch.targets}


def build(name: str, model: GCN) -> tuple[nn.Module, Callable[[GraphBatch], Any], Model]:
    """A candidate with the weights of `model`: its module, what turns a GraphBatch into its input, and what is called."""
    if name in ("fused", "pyg"):
        twin = GCN(
            model.in_channels, model.hidden_channels, model.num_layers, model.out_channels, backend="fused" if name == "fused" else "pyg"
        )
        twin.load_state_dict(model.state_dict())
        return twin, _same if name == "fused" else GraphBatch.to_pyg, twin
    module = HoistedGCN(model)
    return module, hoisted, torch.compile(module, dynamic=False) if name == "pyg_compiled" else module


def _same(batch: GraphBatch) -> GraphBatch:
    return batch
