"""The layers that PyTorch Geometric does not have, as its users would write them: each takes over a reference layer's parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch_geometric.nn import MessagePassing

if TYPE_CHECKING:
    from molgcn.nn.layers.gcn_edge import GCNEdgeLayer


class _Twin(MessagePassing):
    """A `MessagePassing` that takes over the parameters of a reference layer, and draws them as it does."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__(aggr="add")
        self._reference: Any = type(layer)

    def reset_parameters(self) -> None:
        """Draw the parameters as the reference layer draws them."""
        self._reference.reset_parameters(self)


class GCNEdgeConv(_Twin):
    """`gcn_edge` as a `MessagePassing`; formula and shapes: :class:`molgcn.nn.layers.gcn_edge.GCNEdgeLayer`."""

    def __init__(self, layer: GCNEdgeLayer) -> None:
        super().__init__(layer)
        self.lin, self.lin_edge, self.bias = layer.lin, layer.lin_edge, layer.bias

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor:
        """Return the atoms' new states."""
        bonds = edge_attr if self.lin_edge is None else self.lin_edge(edge_attr)
        return self.propagate(edge_index, x=self.lin(x), edge_attr=bonds) + self.bias

    def message(self, x_j: Tensor, edge_attr: Tensor) -> Tensor:
        """Return relu(W h_j + e_ij)."""
        return (x_j + edge_attr).relu()
