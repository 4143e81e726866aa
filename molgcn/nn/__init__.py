"""Models, whose backend chooses the implementation of their layers, and layers for PyG's own models (`any_graph`)."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from molgcn.nn.gcn import GCN
from molgcn.nn.molecule_net import MoleculeNet

if TYPE_CHECKING:
    from molgcn.nn.any_graph import FusedGATConv as FusedGATConv
    from molgcn.nn.any_graph import FusedGATv2Conv as FusedGATv2Conv
    from molgcn.nn.any_graph import FusedGCNConv as FusedGCNConv
    from molgcn.nn.any_graph import FusedGINConv as FusedGINConv
    from molgcn.nn.any_graph import FusedGINEConv as FusedGINEConv
    from molgcn.nn.any_graph import FusedSAGEConv as FusedSAGEConv

_ANY_GRAPH = ("FusedGATConv", "FusedGATv2Conv", "FusedGCNConv", "FusedGINConv", "FusedGINEConv", "FusedSAGEConv")

__all__ = [
    "GCN",
    "FusedGATConv",
    "FusedGATv2Conv",
    "FusedGCNConv",
    "FusedGINConv",
    "FusedGINEConv",
    "FusedSAGEConv",
    "MoleculeNet",
]


def __getattr__(name: str) -> Any:
    """Return a layer of `any_graph`, and import PyG only when one of them is asked for."""
    if name in _ANY_GRAPH:
        return getattr(import_module("molgcn.nn.any_graph"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
