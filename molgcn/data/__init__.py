"""SMILES to packed arrays to batches."""

from typing import TYPE_CHECKING, Any

from molgcn.data.packed import PackedMolecules

if TYPE_CHECKING:
    from molgcn.data.batch import GraphBatch

__all__ = ["GraphBatch", "PackedMolecules"]


def __getattr__(name: str) -> Any:
    """Import GraphBatch when it is first asked for.

    It needs torch, which takes seconds to import and which featurising processes do without.
    """
    if name == "GraphBatch":
        from molgcn.data.batch import GraphBatch

        return GraphBatch
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
