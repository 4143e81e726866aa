import csv

import numpy as np
import pytest
from compiler import needs_extension
from hypothesis import given
from hypothesis import strategies as st

from molgcn.data import PackedMolecules, tiles
from molgcn.data.loader import PackedLoader
from molgcn.data.segments import pointers
from molgcn.data.tiles import best_fit, max_tiles, next_fit, plan_tiles, tile_size

sizes_and_tile = st.sampled_from([64, 128]).flatmap(
    lambda tile: st.tuples(st.lists(st.integers(1, tile + 10), min_size=1, max_size=200), st.just(tile))
)


def test_tile_size_follows_the_largest_molecule():
    assert [tile_size(n) for n in (1, 64, 65, 128, 129, 60_000)] == [64, 64, 128, 128, 128, 128]


@given(sizes_and_tile)
def test_best_fit_orders_all_molecules_into_full_tiles(case):
    sizes, tile = np.array(case[0]), case[1]
    order, tile_ptr = best_fit(sizes, tile)
    assert sorted(order) == list(range(len(sizes)))
    loads = np.add.reduceat(sizes[order], tile_ptr[:-1])
    large = sizes > tile
    fitting = loads[: len(loads) - large.sum()]
    assert np.all(fitting <= tile)
    assert np.array_equal(loads[len(fitting) :], -np.sort(-sizes[large]))  # alone and last
    pairs = fitting[:-1] + fitting[1:]
    assert np.all(pairs > tile)
    assert len(tile_ptr) - 1 <= max_tiles(len(sizes), int(sizes.sum()), int(large.sum()), tile)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=40))
def test_best_fit_takes_the_fullest_tile(sizes):
    """Against the definition, tile by tile."""
    loads: list[int] = []
    for size in sorted(sizes, reverse=True):
        fits = [load for load in loads if load + size <= 64]
        if fits:
            loads[loads.index(max(fits))] += size
        else:
            loads.append(size)
    order, tile_ptr = best_fit(np.array(sizes), 64)
    assert sorted(np.add.reduceat(np.array(sizes)[order], tile_ptr[:-1])) == sorted(loads)


@needs_extension
@given(sizes_and_tile, st.integers(0, 2**32), st.integers(1, 50))
def test_the_extension_plans_as_python_does(case, seed, batch_size):
    assert tiles.HAS_EXTENSION
    sizes, tile = np.array(case[0]), case[1]
    order = np.random.default_rng(seed).permutation(len(sizes))
    batch_ptr = np.minimum(np.arange(-(-len(order) // batch_size) + 1) * batch_size, len(order))
    fast_order, slow_order = order.copy(), order.copy()
    fast = plan_tiles(fast_order, batch_ptr, sizes, tile)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "HAS_EXTENSION", False)
        slow = plan_tiles(slow_order, batch_ptr, sizes, tile)
    assert np.array_equal(fast_order, slow_order)
    for one, other in zip(fast, slow, strict=True):
        assert np.array_equal(one, other) and one.dtype == other.dtype


@given(sizes_and_tile)
def test_next_fit_keeps_the_order(case):
    sizes, tile = np.array(case[0]), case[1]
    ptr = pointers(sizes)
    tile_ptr = next_fit(ptr, tile)
    assert tile_ptr[0] == 0 and tile_ptr[-1] == len(sizes)
    loads, counts = np.diff(ptr[tile_ptr]), np.diff(tile_ptr)
    assert np.all((loads <= tile) | (counts == 1)) and np.all(counts > 0)
    assert np.all(loads[:-1] + sizes[tile_ptr[1:-1]] > tile)  # no tile has room for the molecule behind it
    assert len(counts) <= max_tiles(len(sizes), int(sizes.sum()), int((sizes > tile).sum()), tile)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "features"), [("qm9/qm9_smiles_133k.csv", "qm9"), ("zinc/zinc_24445.smi", "zinc")])
def test_shuffled_batches_of_real_molecules_fill_nine_tenths(real_data, path, features):
    with open(real_data / path) as file:
        smiles = [row[0] for row in csv.reader(file)]
    molecules = PackedMolecules.from_smiles(smiles[1:20_001], features=features, on_error="skip", num_workers=0)
    loader = PackedLoader(molecules, 4096)
    for epoch in range(3):
        plan = loader.plan(epoch)
        for number in range(len(plan) - 1):
            indices, tile_ptr = plan.batch(number)
            assert molecules.num_nodes_per_graph[indices].sum() >= 0.9 * molecules.tile_nodes * (len(tile_ptr) - 1)
