"""Random graphs with the sizes and degree distributions that published systems are measured on, and batches of molecules."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from molgcn.data import PackedMolecules


@dataclass(frozen=True)
class GraphCase:
    """A graph with both directions of every edge, on a device."""

    name: str
    edge_index: Tensor
    num_nodes: int

    @property
    def title(self) -> str:
        """The graph's name and size."""
        return f"{self.name}: {self.num_nodes:,} nodes, {self.edge_index.shape[1]:,} edges"


_SIZES = (  # nodes, directed edges, power-law exponent: like Cora, PubMed, ogbn-arxiv, OVCAR-8H and a dense graph
    ("citations", 2_708, 10_556, 0.0),
    ("more citations", 19_717, 88_648, 0.0),
    ("power law", 169_343, 2_332_486, 0.6),
    ("sparse", 1_800_000, 3_900_000, 0.0),
    ("dense", 23_000, 11_400_000, 0.0),
)


def random_graph(name: str, num_nodes: int, num_edges: int, exponent: float, device: torch.device) -> GraphCase:
    """Return a random graph with a power-law degree distribution, with both directions of every edge, in random order.

    One end of an edge is drawn with a probability proportional to its rank to the power -exponent, the other uniformly.

    Args:
        name: the graph's name in tables.
        num_nodes: the number of nodes.
        num_edges: the number of directed edges, an even number.
        exponent: the exponent of the chances.
        device: where the graph lies.
    """
    generator = torch.Generator().manual_seed(0)
    half = num_edges // 2
    chances = torch.arange(1, num_nodes + 1, dtype=torch.float64).pow(-exponent).cumsum(0)
    drawn = torch.searchsorted(chances, torch.rand(half, generator=generator, dtype=torch.float64) * chances[-1])
    first = torch.randperm(num_nodes, generator=generator)[drawn]
    second = torch.randint(0, num_nodes, (half,), generator=generator)
    ends = torch.stack([torch.cat([first, second]), torch.cat([second, first])])
    return GraphCase(name, ends[:, torch.randperm(2 * half, generator=generator)].contiguous().to(device), num_nodes)


def molecule_graph(molecules: PackedMolecules, batch_size: int, device: torch.device) -> GraphCase:
    """Return a batch of molecules as one graph, drawn at random with replacement.

    Args:
        molecules: the set to draw from.
        batch_size: the number of molecules.
        device: where the graph lies.
    """
    chosen = torch.randint(0, len(molecules), (batch_size,), generator=torch.Generator().manual_seed(0))
    batch = molecules.batch(chosen.numpy())
    return GraphCase(f"{batch_size:,} molecules", batch.edge_index.to(device), batch.num_nodes)


def mesh(side: int, device: torch.device) -> GraphCase:
    """Return a square grid with randomly numbered nodes, whose locality only a renumbering can use."""
    number = torch.randperm(side * side, generator=torch.Generator().manual_seed(0)).view(side, side)
    pairs = [(number[1:], number[:-1]), (number[:, 1:], number[:, :-1])]
    ends = torch.cat([torch.stack([a.flatten(), b.flatten()]) for a, b in pairs], dim=1)
    return GraphCase("shuffled mesh", torch.cat([ends, ends.flip(0)], dim=1).to(device), side * side)


def graphs(device: torch.device) -> list[GraphCase]:
    """Return all graphs, the batch of molecules last."""
    from molgcn.data.config import DatasetConfig
    from molgcn.data.load import load_molecules

    return [*(random_graph(*size, device) for size in _SIZES), molecule_graph(load_molecules(DatasetConfig())[0], 4096, device)]
