"""PyG's layers for any graph, with the same interface and the same results, computed by this project's operators where possible."""

from molgcn.nn.any_graph.gat import FusedGATConv
from molgcn.nn.any_graph.gatv2 import FusedGATv2Conv
from molgcn.nn.any_graph.gcn import FusedGCNConv
from molgcn.nn.any_graph.gin import FusedGINConv
from molgcn.nn.any_graph.gine import FusedGINEConv
from molgcn.nn.any_graph.sage import FusedSAGEConv

__all__ = ["FusedGATConv", "FusedGATv2Conv", "FusedGCNConv", "FusedGINConv", "FusedGINEConv", "FusedSAGEConv"]
