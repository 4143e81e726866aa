"""The layers that PyTorch Geometric lacks, written as its users would write them, with the parameters of the reference layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import scatter

from molgcn.nn.layers.propagate import reverse_bonds

if TYPE_CHECKING:
    from molgcn.nn.layers.dmpnn import DMPNN
    from molgcn.nn.layers.gated_gcn import GatedGCNLayer
    from molgcn.nn.layers.gcn_edge import GCNEdgeLayer


class _ReferenceConv(MessagePassing):
    """Base of a `MessagePassing` that takes the parameters of a reference layer and draws them as that layer does."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__(aggr="add")
        self._reference: Any = type(layer)

    def reset_parameters(self) -> None:
        """Draw the parameters as the reference layer draws them."""
        self._reference.reset_parameters(self)


class GCNEdgeConv(_ReferenceConv):
    """`gcn_edge` as a `MessagePassing`; :class:`molgcn.nn.layers.gcn_edge.GCNEdgeLayer` has formula and shapes."""

    def __init__(self, layer: GCNEdgeLayer) -> None:
        super().__init__(layer)
        self.lin, self.lin_edge, self.bias = layer.lin, layer.lin_edge, layer.bias

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Return the atoms' new states."""
        bonds = edge_attr if self.lin_edge is None else self.lin_edge(edge_attr)
        return self.propagate(edge_index, x=self.lin(x), edge_attr=bonds) + self.bias

    def message(self, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        return (x_j + edge_attr).relu()


class GatedGCNConv(_ReferenceConv):
    """`gated_gcn` as a `MessagePassing`; :class:`molgcn.nn.layers.gated_gcn.GatedGCNLayer` has formula and shapes."""

    def __init__(self, layer: GatedGCNLayer) -> None:
        super().__init__(layer)
        self.A, self.B, self.C, self.D, self.E = layer.A, layer.B, layer.C, layer.D, layer.E

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> tuple[Tensor, Tensor]:
        """Return the new states of the atoms and of the bonds."""
        bonds = self.edge_updater(edge_index, target=self.D(x), source=self.E(x), edge_attr=self.C(edge_attr))
        return self.A(x) + self.propagate(edge_index, x=self.B(x), gates=bonds.sigmoid()), bonds

    def edge_update(self, target_i: Tensor, source_j: Tensor, edge_attr: Tensor) -> Tensor:
        return target_i + source_j + edge_attr

    def message(self, x_j: Tensor, gates: Tensor, index: Tensor, size_i: int) -> Tensor:
        """Return B h_j times the gates, normalised over the bonds that end at the same atom."""
        total = scatter(gates, index, dim=0, dim_size=size_i, reduce="sum")
        return gates / (total.index_select(0, index) + 1e-6) * x_j


class DMPNNConv(_ReferenceConv):
    """`dmpnn` as a `MessagePassing` of bonds' states; :class:`molgcn.nn.layers.dmpnn.DMPNN` has formula and shapes."""

    def __init__(self, layer: DMPNN) -> None:
        super().__init__(layer)
        self.W_i, self.W_h, self.W_o = layer.W_i, layer.W_h, layer.W_o
        self.activation, self.dropout = layer.activation, layer.dropout
        self.depth, self.undirected = layer.depth, layer.undirected

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor | None = None) -> Tensor:
        """Return the atoms' states after all rounds."""
        source, size = edge_index[0], (x.shape[0], x.shape[0])
        reverse = reverse_bonds(edge_index, x.shape[0])
        first = self.W_i(x[source] if edge_attr is None else torch.cat([x[source], edge_attr], dim=1))
        states = self.activation(first)
        for _ in range(1, self.depth):
            if self.undirected:
                states = (states + states[reverse]) / 2
            messages = self.propagate(edge_index, size=size, states=states)[source] - states[reverse]
            states = self.dropout(self.activation(first + self.W_h(messages)))
        incoming = self.propagate(edge_index, size=size, states=states)
        return self.dropout(self.activation(self.W_o(torch.cat([x, incoming], dim=1))))

    def message(self, states: Tensor) -> Tensor:
        return states
