"""The CUDA operator agrees with the float64 oracle under emulation in every layout of a tile: rows, warps and row tiles."""

import pytest
import torch
from emulated import check
from stack_cases import H100, changed, random_batch, random_inputs, warps_of

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.gcn_tile_plan import backward_plan, forward_plan, next_fit

SIZES = [5, 9, 18, 1, 30, 1, 7, 22, 40, 64, 3]
LARGE = [5, 70, 3, 200, 1, 8]
SMALL = Gpu(1, H100)  # so that a block has several tiles
TILES, STRIPS = [40] * 7, [40, 5, 9, 70] * 4  # without and with molecules that are larger than a tile


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        (TILES, {}),
        (STRIPS, {"dropout": 0.3, "training": True, "precision": "bf16"}),
        (TILES, {"pool": "max", "last_activation": True}),
        pytest.param(STRIPS, {}, marks=pytest.mark.slow),
        pytest.param(TILES, {"dropout": 0.3, "training": True, "precision": "bf16"}, marks=pytest.mark.slow),
        pytest.param(STRIPS, {"pool": "max", "last_activation": True}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_more_warps_a_tile_in_forward(emulate, sizes, options):
    inputs = random_inputs(random_batch(sizes, 11, bonds_per_atom=1.2), 32, 3, **options)
    assert warps_of(inputs, SMALL) == [2, 1]
    check(inputs, *((3e-2, 1e-1) if "precision" in options else ()))


@pytest.mark.parametrize(("num_tiles", "forward"), [(7, 1), pytest.param(9, 2, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("precision", "backward"), [("float32", 2), ("bf16", 1)])
def test_64_features_in_one_warp_a_tile_or_two(emulate, num_tiles, forward, precision, backward):
    inputs = random_inputs(random_batch([40] * num_tiles, 11, bonds_per_atom=1.2), 64, 3, precision=precision)
    assert warps_of(inputs, SMALL) == [forward, backward]
    check(inputs, *((3e-2, 1e-1) if precision == "bf16" else ()))


@pytest.mark.parametrize(("hidden", "channels"), [(32, 43), pytest.param(16, 70, marks=pytest.mark.slow)])
@pytest.mark.parametrize("sizes", [[40] * 3, [40, 70, 30]], ids=["tiles", "large"])
def test_more_warps_than_ins_of_one_piece_in_bf16(emulate, hidden, channels, sizes):
    """Warps without a piece only take turns for column sums, also if the input has several pieces."""
    inputs = random_inputs(random_batch(sizes, channels, bonds_per_atom=1.2), hidden, 2, precision="bf16")
    assert warps_of(inputs, SMALL)[1] == 4
    check(inputs, 3e-2, 1e-1)


@pytest.mark.parametrize("hidden", [72, *(pytest.param(other, marks=pytest.mark.slow) for other in (160, 224))])
def test_rows_in_bf16_whose_size_is_no_power_of_two(emulate, hidden):
    """Several groups of warps have rows that lie side by side."""
    inputs = random_inputs(random_batch([40] * 5, 11, bonds_per_atom=1.2), hidden, 2, precision="bf16", strategy="tile")
    check(inputs, 3e-2, 1e-1)


SMALL_SIZES = [5, 9, 18, 1, 30, 1, 7, 22, 40, 48, 3, 60]  # the last is larger than a tile of 48 rows


@pytest.mark.parametrize("num_multiprocessors", [1, pytest.param(12, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm": "layer", "residual": True, "pool": "max", "last_activation": True},
        {"dropout": 0.3, "training": True, "precision": "bf16"},
    ],
    ids=str,
)
@pytest.mark.parametrize("hidden", [32, *(pytest.param(other, marks=pytest.mark.slow) for other in (16, 50))])
def test_tiles_of_48_rows(emulate, monkeypatch, hidden, options, num_multiprocessors):
    """A tile has one warp with three row tiles, or three warps with one each."""
    emulate.properties = Gpu(num_multiprocessors, H100)
    inputs = random_inputs(random_batch(SMALL_SIZES, 11, bonds_per_atom=1.2), hidden, 3, tile_nodes=48, **options)
    check(inputs, *((3e-2, 9e-2) if "precision" in options else ()))


MIDDLE_SIZES = [5, 9, 18, 1, 30, 7, 22, 40, 64, 3, 96, 20, 60]


@pytest.mark.parametrize("sizes", [MIDDLE_SIZES, [*LARGE, 97, 350, 20]], ids=["tiles", "large"])
@pytest.mark.parametrize(
    ("hidden", "channels", "options"),
    [
        (32, 11, {}),
        pytest.param(32, 50, {"pool": "sum", "precision": "bf16"}, marks=pytest.mark.slow),
        (32, 11, {"dropout": 0.3, "training": True, "precision": "bf16"}),
        pytest.param(32, 11, {"norm": "batch"}, marks=pytest.mark.slow),
        pytest.param(16, 50, {"norm": "layer", "residual": True, "pool": "max", "last_activation": True}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_tiles_of_96_rows(emulate, hidden, channels, options, sizes):
    """A tile has two warps with their own turns; warps of a large molecule take them between its strips."""
    inputs = random_inputs(random_batch(sizes, channels, bonds_per_atom=1.2), hidden, 3, tile_nodes=96, **options)
    planned = changed(inputs, tile_ptr=next_fit(inputs.graph.ptr, 96))
    layouts = {(plan.warps, plan.row_tiles) for plan in (forward_plan(planned, SMALL), backward_plan(planned, SMALL))}
    assert layouts == {(4, 2) if "norm" in options and hidden > 16 else (2, 3)}
    check(inputs, *((3e-2, 9e-2) if "precision" in options else ()))


@pytest.mark.parametrize("tile_nodes", [pytest.param(48, marks=pytest.mark.slow), 96])
@pytest.mark.parametrize("bonds_per_atom", [0.1, *(pytest.param(other, marks=pytest.mark.slow) for other in (0.4, 0.7)), 2.5])
def test_few_and_many_bonds(emulate, tile_nodes, bonds_per_atom):
    """Atoms of a row tile have one, two, three, four or more neighbours, beside row tiles with other numbers."""
    inputs = random_inputs(random_batch(MIDDLE_SIZES, 11, bonds_per_atom=bonds_per_atom), 32, 3, tile_nodes=tile_nodes)
    check(changed(inputs, tile_ptr=next_fit(inputs.graph.ptr, tile_nodes)))


def test_a_width_that_is_no_power_of_two_in_many_tiles(emulate, monkeypatch):
    emulate.properties = Gpu(1, H100)
    check(random_inputs(random_batch([64, 40, 60, 33], 11), 96, 2))


@pytest.mark.parametrize(("hidden", "layers", "warps"), [(64, 3, 4), pytest.param(96, 8, 8, marks=pytest.mark.slow)])
def test_tiles_of_128_rows_in_several_warps(emulate, hidden, layers, warps):
    """In eight warps a lane's masks fill one and a half words; in deep networks they exceed the room of the largest molecules."""
    inputs = random_inputs(random_batch([120, 128, 100, 90], 11), hidden, layers, tile_nodes=128, last_activation=True)
    assert warps_of(inputs, SMALL) == [warps, warps]
    check(inputs)


@pytest.mark.parametrize("tile_nodes", [64, 96])
@pytest.mark.parametrize("num_multiprocessors", [1, 12])
def test_empty_tiles_at_the_end(emulate, monkeypatch, num_multiprocessors, tile_nodes):
    """A padded batch has empty tiles, and a block may get only such tiles."""
    emulate.properties = Gpu(num_multiprocessors, H100)
    inputs = random_inputs(random_batch(SIZES, 11), 32, 3, tile_nodes=tile_nodes)
    tiles = next_fit(inputs.graph.ptr, tile_nodes)
    check(changed(inputs, tile_ptr=torch.cat([tiles, tiles[-1:].expand(9)])))
