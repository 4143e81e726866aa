"""Draw random molecules for the tests of this folder."""

from itertools import pairwise

import numpy as np
import torch
from hypothesis import strategies as st
from torch_geometric.data import Batch, Data

from molgcn.data import GraphBatch


def random_data(
    rng: np.random.Generator,
    num_nodes: int,
    num_features: int = 3,
    num_targets: int = 2,
    levels: int = 3,
    num_edge_features: int = 0,
    num_descriptors: int = 0,
) -> Data:
    """Return a molecule with bonds in any order, duplicates and self-loops among them, and features of `levels` values (0: all different).

    Its bonds have features where `num_edge_features` is not 0, each direction its own.
    """
    pairs = rng.integers(0, num_nodes, (2, int(rng.integers(0, 2 * num_nodes + 1))))
    edges = np.concatenate([pairs, pairs[::-1][:, pairs[0] != pairs[1]]], axis=1)
    edges = edges[:, rng.permutation(edges.shape[1])]

    def features(shape: tuple[int, int]) -> torch.Tensor:
        return torch.tensor(rng.integers(0, levels, shape) if levels else rng.standard_normal(shape), dtype=torch.float)

    x = features((num_nodes, num_features))
    y = rng.standard_normal((1, num_targets))
    y[rng.random(y.shape) < 0.2] = np.nan
    item = Data(x=x, edge_index=torch.tensor(edges), y=torch.tensor(y, dtype=torch.float))
    if num_edge_features:
        item.edge_attr = features((edges.shape[1], num_edge_features))
    if num_descriptors:
        item.descriptors = torch.tensor(rng.standard_normal((1, num_descriptors)), dtype=torch.float)
    return item


SIZES = st.one_of(st.integers(1, 12), st.integers(20, 70), st.sampled_from([63, 64, 65, 127, 128, 129, 256, 257, 300]))


@st.composite
def molecule_lists(draw: st.DrawFn, max_size: int = 25, sizes: st.SearchStrategy[int] = SIZES) -> list[Data]:
    """Draw lists of random molecules with the same numbers of features and targets."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    shape = {
        "num_features": draw(st.sampled_from([1, 2, 3, 4, 5, 11, 28, 43, 130])),
        "num_targets": draw(st.integers(0, 3)),
        "levels": draw(st.sampled_from([0, 1, 2, 3])),
        "num_edge_features": draw(st.sampled_from([0, 1, 3, 4, 13])),
        "num_descriptors": draw(st.sampled_from([0, 1, 5])),
    }
    return [random_data(rng, size, **shape) for size in draw(st.lists(sizes, min_size=1, max_size=max_size))]


def sorted_edges(edge_index: torch.Tensor) -> torch.Tensor:
    """Return the bonds sorted by target, then source."""
    return edge_index[:, np.lexsort(edge_index.numpy())]


def assert_same_bonds(edge_attr: torch.Tensor | None, expected: Data) -> None:
    """Assert that `edge_attr` is that of `expected`, sorted by target, source and order of appearance, or None if it has none."""
    assert (edge_attr is None) == (expected.edge_attr is None)
    if edge_attr is not None:
        assert edge_attr.dtype == torch.float and torch.equal(edge_attr, expected.edge_attr[np.lexsort(expected.edge_index.numpy())])


def assert_collated(batch: GraphBatch, data: list[Data], bonds: bool = False) -> None:
    """Assert that `batch` is PyG's batch of its molecules up to the order of bonds, with bond features if `bonds`."""
    indices = batch.indices.tolist()
    expected = Batch.from_data_list([data[i] for i in indices])
    assert batch.num_graphs == len(indices) and batch.num_nodes == expected.num_nodes and batch.num_edges == expected.num_edges
    assert torch.equal(batch.x, expected.x)
    assert torch.equal(batch.ptr.long(), expected.ptr)
    assert torch.equal(batch.edge_index, sorted_edges(expected.edge_index))
    assert torch.equal(batch.batch, expected.batch)
    if bonds:
        assert_same_bonds(batch.edge_attr, expected)
    for name in ("rwse", "bond_rw", "descriptors"):  # only molecules with bonds in the order of a packed set have these
        assert torch.equal(getattr(batch, name), expected[name]) if name in expected else getattr(batch, name) is None
    assert torch.equal(batch.targets.nan_to_num(nan=-9), expected.y.nan_to_num(nan=-9))
    assert_tiles(batch)


def assert_tiles(batch: GraphBatch) -> None:
    """Assert that tiles hold all molecules in order, have at most as many atoms as allowed, and hold larger molecules alone."""
    tiles, ptr = batch.tile_ptr.tolist(), batch.ptr.tolist()
    assert tiles[0] == 0 and tiles[-1] == batch.num_graphs and batch.tile_ptr.dtype == torch.int32
    for first, last in pairwise(tiles):
        assert first < last
        assert ptr[last] - ptr[first] <= batch.tile_nodes or last == first + 1
