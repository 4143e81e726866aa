"""Models; the backend chooses their layers' implementation."""

from molgcn.nn.gcn import GCN

__all__ = ["GCN"]
