"""Models; the backend chooses their layers' implementation. And `FusedGCNConv`, a layer for PyG's own models."""

from typing import TYPE_CHECKING, Any

from molgcn.nn.gcn import GCN
from molgcn.nn.molecule_net import MoleculeNet

if TYPE_CHECKING:
    from molgcn.nn.conv import FusedGCNConv as FusedGCNConv

__all__ = ["GCN", "FusedGCNConv", "MoleculeNet"]


def __getattr__(name: str) -> Any:
    """Imports PyG only when its layer is asked for."""
    if name == "FusedGCNConv":
        from molgcn.nn.conv import FusedGCNConv

        return FusedGCNConv
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
