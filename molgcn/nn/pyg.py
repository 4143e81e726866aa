"""backend=pyg: PyTorch Geometric's own layers and pooling, against which results and speed are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from molgcn.errors import UserError
from molgcn.nn import forward
from molgcn.nn.graph_inputs import graph_inputs
from molgcn.nn.layers.base import LayerKind, LayerOptions
from molgcn.nn.pooling import Reductions
from molgcn.ops.head_loss import Objective, loss_of

with torch.device("cpu"):  # networks are also built on the device "meta", where constants of PyG's modules must not be
    from torch_geometric.nn import global_add_pool, global_max_pool, global_mean_pool
    from torch_geometric.utils import softmax

if TYPE_CHECKING:
    from molgcn.nn.molecule_net import MoleculeNet

name = "pyg"


def _softmax(scores: Tensor, index: Tensor, count: int) -> Tensor:
    return softmax(scores, index, num_nodes=count)


REDUCTIONS = Reductions(global_mean_pool, global_add_pool, global_max_pool, _softmax)


def conv(kind: LayerKind, options: LayerOptions) -> nn.Module:
    """Return PyTorch Geometric's layer, if the kind of layer has one."""
    if kind.pyg is None:
        raise UserError(f"backend=pyg has no layer {kind.name}. Use backend=reference or backend=auto.")
    return kind.pyg(options)


def predictions(model: MoleculeNet, batch: Any) -> Tensor:
    return forward.predictions(model, graph_inputs(model, batch), REDUCTIONS)


def loss(model: MoleculeNet, batch: Any, objective: Objective) -> tuple[Tensor, Tensor]:
    return loss_of(predictions(model, batch), objective, fused=False)
