"""How many molecules, atoms, bonds and tiles a slot has places for."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from molgcn.data.packed import PackedMolecules
from molgcn.data.tiles import max_tiles
from molgcn.errors import UserError


@dataclass(frozen=True)
class Capacity:
    """Places of a slot.

    Attributes:
        graphs: molecules.
        nodes: atoms.
        edges: bonds.
        tiles: tiles.
        tile_nodes: nodes of a tile.
        large_molecules: whether a molecule may have more nodes than a tile.
        leaves_merged: whether atoms alike are one row.
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
        molecules: PackedMolecules,
        batch_size: int,
        nodes: int | None = None,
        edges: int | None = None,
        tile_nodes: int | None = None,
        repeats: bool = False,
    ) -> Capacity:
        """Return what any `batch_size` molecules of the set, or all if it has fewer, fit into.

        It has as many atoms and bonds as the set's largest molecules have, each counted by itself.

        Args:
            molecules: the set.
            batch_size: molecules a batch.
            nodes: atoms, if given; for slots that several sets share.
            edges: bonds, if given.
            tile_nodes: node places of a tile; default the set's.
            repeats: whether a batch may hold a molecule several times, so that all of it may be the largest one.

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
