"""The molecules of a batch as one graph, in the form that the operators read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor


class Graph(NamedTuple):
    """The molecules of a batch as one graph, with hints for kernels: N atoms, E directed bonds, B molecules.

    Attributes:
        x: The atoms' features, float [N, F].
        bonds: The bonds' features: [K, D] for K distinct bonds, or [E, D] for every bond; None if the network has no bond features.
        ptr: The first atom of each molecule, int32 [B + 1]. Rows from `ptr[B]` on are padding.
        rowptr: The first bond that points at each atom, int32 [N + 1].
        col: The source atom of each bond, int32 [E], counted through the batch. Bonds are sorted by target, then source. Both directions
            of a bond occur equally often, so that the adjacency is symmetric, unless `leaves_merged`.
        code: The row of each bond among the K distinct ones, int32 [E], or None if each bond has its own row.
        tile_ptr: The first molecule of each tile, int32 [tiles + 1], or None. It is an optional hint for CUDA.
        counts: The numbers of molecules, atoms and bonds in use in a padded batch, int32 [3 or more]; see `GraphBatch.counts`. None means
            that the arrays are full. Only graph convolutions on the CPU read it.
        tile_nodes: The most atoms of a tile of several molecules. It is a hint for CUDA.
        large_molecules: False promises that no molecule and no tile has more than `tile_nodes` atoms. Some CUDA kernels need it, others
            compile in half the time. A molecule that breaks the promise may have NaN as its result and gradient. Other molecules are not
            affected, and it adds nothing to the weights' gradients of graph convolutions.
        leaves_merged: Whether a row with a single neighbour stands for several equal atoms (:mod:`molgcn.data.merge_leaves`). Their number,
            at most 255, is how often the neighbour lists the row. The row's gradient is the sum of theirs. This needs graph convolutions on
            CUDA, strategy "tile" and no dropout.
    """

    x: Tensor
    bonds: Tensor | None
    ptr: Tensor
    rowptr: Tensor
    col: Tensor
    code: Tensor | None = None
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
    def num_bond_rows(self) -> int:
        """The number of rows of `bonds`, K or E; 0 without bond features."""
        return 0 if self.bonds is None else self.bonds.shape[0]

    @property
    def most_in_tile(self) -> int:
        """The most atoms that a tile of `tile_ptr` is promised to have, or 0 without a promise."""
        return 0 if self.tile_ptr is None or self.large_molecules else self.tile_nodes

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """All tensors, or None for those that there are not."""
        return self.x, self.bonds, self.ptr, self.rowptr, self.col, self.code, self.tile_ptr, self.counts

    @property
    def hints(self) -> tuple[int, bool, bool]:
        """What is no tensor."""
        return self.tile_nodes, self.large_molecules, self.leaves_merged

    def mapped(self, function: Callable[[Tensor], Any]) -> Graph:
        """Return the record with a function applied to each of its tensors."""
        return self._replace(**{name: function(value) for name, value in self._asdict().items() if isinstance(value, Tensor)})


NUM_TENSORS = Graph._fields.index("tile_nodes")
GRAPH_SCHEMA = (
    "Tensor x, Tensor? bonds, Tensor ptr, Tensor rowptr, Tensor col, Tensor? code, Tensor? tile_ptr, Tensor? counts, int tile_nodes, "
    "bool large_molecules, bool leaves_merged"
)
"""The record among the arguments of an operator."""
