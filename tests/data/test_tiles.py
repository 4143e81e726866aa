import csv

import numpy as np
import pytest
from compiler import needs_extension
from hypothesis import given
from hypothesis import strategies as st

from molgcn.data import PackedMolecules, tiles
from molgcn.data.loader import PackedLoader
from molgcn.data.segments import pointers
from molgcn.data.tiles import fill_tiles, max_tiles, next_fit, plan_tiles, tile_size

sizes_and_tile = st.sampled_from([48, 64, 128]).flatmap(
    lambda tile: st.tuples(st.lists(st.integers(1, tile + 10), min_size=1, max_size=200), st.just(tile))
)


def test_tile_size_follows_the_largest_molecule():
    assert [tile_size(n) for n in (1, 64, 65, 128, 129, 60_000)] == [64, 64, 128, 128, 128, 128]


@given(sizes_and_tile)
def test_fill_tiles_orders_all_molecules_into_full_tiles(case):
    sizes, tile = np.array(case[0]), case[1]
    order, tile_ptr = fill_tiles(sizes, tile)
    assert sorted(order) == list(range(len(sizes)))
    loads = np.add.reduceat(sizes[order], tile_ptr[:-1])
    large = sizes > tile
    fitting = loads[: len(loads) - large.sum()]
    assert np.all(fitting <= tile)
    assert np.array_equal(loads[len(fitting) :], -np.sort(-sizes[large]))  # alone and last
    pairs = fitting[:-1] + fitting[1:]
    assert np.all(pairs > tile)
    assert len(tile_ptr) - 1 <= max_tiles(len(sizes), int(sizes.sum()), int(large.sum()), tile)


def _fewest_tiles(sizes, tile):
    """Return the smallest number of tiles by trying everything."""
    best = len(sizes) + 1

    def place(left, loads):
        nonlocal best
        if len(loads) >= best:
            return
        if not left:
            best = len(loads)
            return
        for i in {load: i for i, load in enumerate(loads) if load + left[0] <= tile}.values():
            place(left[1:], [*loads[:i], loads[i] + left[0], *loads[i + 1 :]])
        place(left[1:], [*loads, left[0]])

    place(sorted(sizes, reverse=True), [])
    return best


@given(st.lists(st.integers(5, 40), min_size=1, max_size=9))
def test_fill_tiles_against_every_other_way(sizes):
    fewest = _fewest_tiles(sizes, 48)
    assert fewest <= len(fill_tiles(np.array(sizes), 48)[1]) - 1 <= fewest + 1


@pytest.mark.parametrize(("tile", "full"), [(48, 0.89), (64, 0.97), (128, 0.995)])
def test_fill_tiles_fills_them(tile, full):
    """Molecules are as large as QM9's; two and a half, three and a half, or seven of them make a tile."""
    sizes = np.random.default_rng(0).normal(18.3, 2.9, 4096).round().astype(int)
    assert sizes.sum() / tile > full * (len(fill_tiles(sizes, tile)[1]) - 1)


@needs_extension
@pytest.mark.parametrize("tile", [48, 64, 128])
def test_the_extension_plans_many_molecules_as_python_does(tile):
    sizes = np.random.default_rng(tile).normal(23, 5, 3000).round().astype(int)
    order, tile_ptr = fill_tiles(sizes, tile)
    planned = np.arange(len(sizes))
    assert np.array_equal(plan_tiles(planned, np.array([0, len(sizes)]), sizes, tile)[0], tile_ptr)
    assert np.array_equal(planned, order)


@needs_extension
def test_the_extension_refuses_tiles_whose_values_pass_32_bits():
    sizes = np.random.default_rng(0).integers(1, 241, 500)
    order, tile_ptr = fill_tiles(sizes, 240)
    planned = np.arange(len(sizes))
    assert np.array_equal(plan_tiles(planned, np.array([0, len(sizes)]), sizes, 240)[0], tile_ptr)
    assert np.array_equal(planned, order)
    for tile in (0, 241):
        with pytest.raises(ValueError, match="from 1 to 240"):
            plan_tiles(planned, np.array([0, len(sizes)]), sizes, tile)


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
    assert np.all(loads[:-1] + sizes[tile_ptr[1:-1]] > tile)  # no tile has room for the next molecule
    assert len(counts) <= max_tiles(len(sizes), int(sizes.sum()), int((sizes > tile).sum()), tile)


@pytest.mark.slow
@pytest.mark.parametrize(("path", "features"), [("qm9/qm9_smiles_133k.csv", "qm9"), ("zinc/zinc_24445.smi", "zinc")])
def test_shuffled_batches_of_real_molecules_fill_tiles(real_data, path, features):
    with open(real_data / path) as file:
        smiles = [row[0] for row in csv.reader(file)]
    molecules = PackedMolecules.from_smiles(smiles[1:20_001], features=features, on_error="skip", num_workers=0)
    loader = PackedLoader(molecules, 4096)
    for epoch in range(3):
        plan = loader.plan(epoch)
        for number in range(len(plan) - 1):
            indices, tile_ptr = plan.batch(number)
            assert molecules.num_nodes_per_graph[indices].sum() > 0.95 * molecules.tile_nodes * (len(tile_ptr) - 1)
