"""The graph of a batch, in the form that the operators read."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Graph(NamedTuple):
    """The molecules of a batch as one graph, with hints for kernels: N atoms, E directed bonds, B molecules.

    Attributes:
        x: The atoms' features, float [N, F].
        ptr: The first atom of each molecule, int32 [B + 1].
        rowptr: The first bond that points at each atom, int32 [N + 1].
        col: The source atom of each bond, int32 [E], counted through the batch. Bonds are sorted by target, then source. Both directions
            of a bond occur equally often, so that the adjacency is symmetric, unless `leaves_merged`.
        tile_ptr: The first molecule of each tile, int32 [tiles + 1], or None. It is an optional hint for CUDA.
        counts: The numbers of molecules, atoms and bonds in use in a padded batch, int32 [3 or more]; see `GraphBatch.counts`. None means
            that the arrays are full.
        tile_nodes: The most atoms of a tile of several molecules. It is a hint for CUDA.
        large_molecules: False promises that no molecule and no tile has more than `tile_nodes` atoms. CUDA kernels then compile in half
            the time. A molecule that breaks the promise may have NaN as its result and gradient. Other molecules are not affected, and it
            adds nothing to the weights' gradients.
        leaves_merged: Whether a row with a single neighbour stands for several equal atoms (:mod:`molgcn.data.merge_leaves`). Their number,
            at most 255, is how often the neighbour lists the row. The row's gradient is the sum of theirs. This needs CUDA, strategy
            "tile" and no dropout.
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
        """The number of molecules, B."""
        return self.ptr.shape[0] - 1

    @property
    def num_nodes(self) -> int:
        """The number of atoms, N."""
        return self.x.shape[0]

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """All tensors, or None for those that there are not."""
        return self.x, self.ptr, self.rowptr, self.col, self.tile_ptr, self.counts
