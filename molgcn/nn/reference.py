"""backend=reference: the network in plain PyTorch. Kernels are checked against it, it runs where no kernel does, and it is exported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from molgcn.nn import forward
from molgcn.nn.graph_inputs import graph_inputs
from molgcn.nn.layers.base import LayerKind, LayerOptions
from molgcn.nn.layers.propagate import max_incoming, mean_incoming, softmax_incoming, sum_incoming
from molgcn.nn.pooling import Reductions
from molgcn.ops.head_loss import Objective, loss_of

if TYPE_CHECKING:
    from molgcn.nn.molecule_net import MoleculeNet

name = "reference"
REDUCTIONS = Reductions(mean_incoming, sum_incoming, max_incoming, softmax_incoming)


def conv(kind: LayerKind, options: LayerOptions) -> nn.Module:
    return kind.reference(options)


def predictions(model: MoleculeNet, batch: Any) -> Tensor:
    """Return the predictions [B, T]; a padded batch gets one for each of its places, real or not."""
    return forward.predictions(model, graph_inputs(model, batch), REDUCTIONS)


def loss(model: MoleculeNet, batch: Any, objective: Objective) -> tuple[Tensor, Tensor]:
    return loss_of(predictions(model, batch), objective, fused=False)
