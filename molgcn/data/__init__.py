"""SMILES to packed arrays to batches."""

from molgcn.data.batch import GraphBatch
from molgcn.data.packed import PackedMolecules

__all__ = ["GraphBatch", "PackedMolecules"]
