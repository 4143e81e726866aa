"""The numbers of molecules, atoms, bonds and tiles that a slot has room for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from molgcn.data.molecule_set import MoleculeSet
from molgcn.data.tiles import max_tiles
from molgcn.errors import UserError


@dataclass(frozen=True)
class Capacity:
    """The size of a slot.

    Attributes:
        graphs: largest number of molecules.
        nodes: largest number of atoms.
        edges: largest number of directed bonds.
        tiles: largest number of tiles.
        tile_nodes: number of atoms that a tile has room for.
        large_molecules: whether a molecule may have more atoms than a tile.
        leaves_merged: whether equal leaves are one row, see :func:`molgcn.data.merge_leaves.merge_leaves`.
    """

    graphs: int
    nodes: int
    edges: int
    tiles: int
    tile_nodes: int
    large_molecules: bool
    leaves_merged: bool = False

    @classmethod
    def of(
        cls,
        molecules: MoleculeSet,
        batch_size: int,
        nodes: int | None = None,
        edges: int | None = None,
        tile_nodes: int | None = None,
        repeats: bool = False,
    ) -> Capacity:
        """Return a capacity into which any `batch_size` molecules of the set fit.

        It has room for the atoms of the molecules with the most atoms, and for the bonds of the molecules with the most bonds.

        Args:
            molecules: the set.
            batch_size: number of molecules in a batch. A smaller set needs room for all its molecules only.
            nodes: number of atoms, for slots that several sets share. Default: as many as the set needs.
            edges: number of directed bonds. Default: as many as the set needs.
            tile_nodes: number of atoms that a tile has room for. Default: that of the set.
            repeats: whether a batch may hold a molecule several times, so that the largest molecule may fill the whole batch.

        Raises:
            UserError: when `nodes` or `edges` is less than the set needs.
        """
        sizes = molecules.num_nodes_per_graph
        graphs = min(batch_size, len(molecules))
        need = {
            "atoms": _largest(sizes, graphs, repeats),
            "bonds": _largest(np.diff(molecules.edge_ptr), graphs, repeats),
        }
        given = {"atoms": nodes, "bonds": edges}
        for what, least in need.items():
            if (places := given[what]) is not None and places < least:
                raise UserError(
                    f"A slot of {places:,} {what} is too small: the {graphs:,} largest molecules of the set have {least:,}. "
                    f"Give at least as many, or lower dataset.batch_size."
                )
        nodes, edges = nodes or need["atoms"], need["bonds"] if edges is None else edges
        tile_nodes = tile_nodes or molecules.tile_nodes
        large = min(graphs, int((sizes > tile_nodes).sum()))
        large = graphs if repeats and large else large
        return cls(graphs, nodes, edges, max_tiles(graphs, nodes, large, tile_nodes), tile_nodes, large > 0, molecules.leaves_merged)


def _largest(sizes: np.ndarray, count: int, repeats: bool) -> int:
    if repeats:
        return count * int(sizes.max())
    return int(np.partition(sizes, len(sizes) - count)[len(sizes) - count :].sum())
