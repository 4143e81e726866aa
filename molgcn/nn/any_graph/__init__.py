"""PyG's layers for any graph, with the same interface and the same results, computed by this project's operators where possible."""

from molgcn.nn.any_graph.attention import FusedGATConv, FusedGATv2Conv
from molgcn.nn.any_graph.gcn import FusedGCNConv
from molgcn.nn.any_graph.neighbours import FusedGINConv, FusedGINEConv, FusedSAGEConv

__all__ = ["FusedGATConv", "FusedGATv2Conv", "FusedGCNConv", "FusedGINConv", "FusedGINEConv", "FusedSAGEConv"]
