"""The graph of a batch, as the operators take it."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Graph(NamedTuple):
    """The molecules of a batch as one graph, with hints for kernels: N atoms, E bonds, B molecules.

    Attributes:
        x: float [N, F], the atoms' features.
        ptr: int32 [B + 1], first atom of each molecule.
        rowptr: int32 [N + 1], first bond that points at each atom.
        col: int32 [E], source atom of each bond, counted through the batch, sorted by target, then source; both directions of a bond
            present equally often, so that the adjacency is symmetric (but see `leaves_merged`).
        tile_ptr: int32 [tiles + 1], first molecule of each tile, or None; an optional hint for CUDA, as `tile_nodes`.
        counts: of a padded batch: int32 [3 or more], molecules, atoms and bonds in use, as `GraphBatch.counts`; None where the arrays are
            full.
        tile_nodes: most atoms of a tile of several molecules.
        large_molecules: False promises that no molecule and no tile has more than `tile_nodes` atoms: CUDA kernels then take half as long
            to compile. What breaks the promise may have NaN as its result and as its gradient; the rest and the weights do without it.
        leaves_merged: a row whose only bond goes to another row stands for as many atoms, at most 255, as that one lists it
            (:mod:`molgcn.data.merge_leaves`); its gradient is the sum of theirs. On CUDA with strategy "tile", without dropout.
    """

    x: Tensor
    ptr: Tensor
    rowptr: Tensor
    col: Tensor
    tile_ptr: Tensor | None = None
    counts: Tensor | None = None
    tile_nodes: int = 64
    large_molecules: bool = True
    leaves_merged: bool = False

    @property
    def num_graphs(self) -> int:
        """B."""
        return self.ptr.shape[0] - 1

    @property
    def num_nodes(self) -> int:
        """N."""
        return self.x.shape[0]
