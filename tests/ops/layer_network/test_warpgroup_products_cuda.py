"""Products by Hopper's asynchronous instructions are as right in emulation as the others, and are chosen for wide rows."""

import pytest
import torch
from compiling import compiles
from emulated import gpu_memory
from products_backward_cases import worst_backward
from products_cases import call_of, launch_all, worst_forward
from stack_cases import H100
from weight_grads_cases import worst_weight

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.layer_network.passes import Pass, saved_numbers
from molgcn.ops.layer_network.products_arguments import MAX_PRODUCTS
from molgcn.ops.layer_network.products_macros import prefetch_kernels
from molgcn.ops.layer_network.products_plan import MAX_WIDTH, Widths, Work, row_blocks
from molgcn.ops.layer_network.weights_plan import Shape, WarpgroupWeightTile, weight_blocks

HOPPER = Gpu(1, H100, has_clusters=True, has_warpgroups=True)
BONDS = {"conv": "gine", "edge_channels": 5}


@pytest.fixture(autouse=True)
def poisoned():
    with torch.no_grad(), gpu_memory():
        yield


def uses_warpgroups(emulate):
    return {bool(macros["WARPGROUPS"]) for source, macros in emulate.used if source == "product_rows.cu" and 160 < macros["OUT"] <= 320}


@pytest.mark.parametrize(
    ("in_channels", "hidden", "real", "padding", "options"),
    [
        (11, 208, 40, 3, {"num_layers": 1, "feed_forward": False}),
        (208, 208, 20, 3, {"conv": "sage", "norm": None, "num_layers": 1, "feed_forward": False}),  # adds before the activation
        (
            70,
            70,
            20,
            3,
            {"conv": "gated_gcn", "edge_channels": 5, "norm": "batch", "mlp_norm": False, "feed_forward": False},
        ),  # three weights
        pytest.param(208, 208, 200, 9, {"num_layers": 1, "residual": True}, marks=pytest.mark.slow),
        pytest.param(300, 300, 90, 0, {"residual": True, "feed_forward": False, **BONDS}, marks=pytest.mark.slow),
        pytest.param(11, 208, 0, 5, {"num_layers": 1}, marks=pytest.mark.slow),
    ],
)
def test_products_are_as_precise_as_float32(emulate, in_channels, hidden, real, padding, options):
    emulate.properties = HOPPER
    call = call_of(in_channels, hidden, real, padding, **options)
    assert worst_forward(call) < 2e-7
    errors = worst_backward(call)
    assert max(errors["rows"], errors["masked"]) < 2e-7
    assert errors["norms"] < 1e-6
    assert uses_warpgroups(emulate) == {True}


@pytest.mark.parametrize(
    ("in_channels", "hidden", "real", "padding", "options"),
    [
        (11, 208, 40, 5, {}),
        pytest.param(300, 300, 90, 0, BONDS, marks=pytest.mark.slow),
        pytest.param(64, 172, 333, 3, {"norm": "batch"}, marks=pytest.mark.slow),
        pytest.param(300, 208, 0, 45, {}, marks=pytest.mark.slow),
    ],
)
def test_gradients_of_weights_are_as_precise_as_float32(emulate, in_channels, hidden, real, padding, options):
    emulate.properties = HOPPER._replace(num_multiprocessors=6)
    errors = worst_backward(call_of(in_channels, hidden, real, padding, num_layers=1, feed_forward=False, **options))
    assert errors["weights"] < 5e-7
    assert errors["biases"] < 5e-7
    assert {source for source in emulate.sources if source.startswith("product_weights")} == {"product_weights_async.cu"}


@pytest.mark.slow
def test_gradients_of_weights_of_columns_of_all_sizes(emulate):
    """Columns share scales, 16 of one matrix and 8 of the other. Those a million times smaller keep as much as all had before."""
    emulate.properties = HOPPER._replace(num_multiprocessors=6)
    call = call_of(208, 208, 70, num_layers=1, feed_forward=False)
    assert worst_weight(call, torch.tensor([1e3, 1.0, 1e-3])) < 2e-6
    assert {source for source in emulate.sources if source.startswith("product_weights")} == {"product_weights_async.cu"}


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "bound"), [("tf32", 3e-4), ("bf16", 3e-3)])
def test_lower_precision_is_what_was_asked_for(emulate, precision, bound):
    emulate.properties = HOPPER
    call = call_of(11, 208, 40, precision=precision, num_layers=1)
    assert 1e-5 < worst_forward(call) < bound
    assert 1e-5 < worst_backward(call)["weights"] < 3 * bound
    assert uses_warpgroups(emulate) == {True}
    assert "product_weights_async.cu" in emulate.sources


@pytest.mark.slow
def test_barriers_order_all_accesses_to_shared_memory(emulate):
    emulate.properties, emulate.find_races = HOPPER._replace(shared_limit=64 * 1024), True  # small tiles: the race finder takes much memory
    launch_all(call_of(11, 208, 40, num_layers=1, feed_forward=False))
    assert uses_warpgroups(emulate) == {True}


@pytest.mark.slow
def test_barriers_order_all_accesses_of_gradients_of_weights(emulate):
    emulate.properties, emulate.find_races = HOPPER._replace(num_multiprocessors=6), True
    launch_all(call_of(11, 208, 300, num_layers=1, feed_forward=False))
    assert "product_weights_async.cu" in emulate.sources


@pytest.mark.parametrize("row_groups", [6, *(pytest.param(number, marks=pytest.mark.slow) for number in (2, 4, 7, 8, 10))])
def test_every_size_of_tile_compiles(emulate, row_groups):
    emulate.properties = HOPPER
    call = call_of(300, 300, 40, num_layers=1, feed_forward=False)
    run = Pass(call, call.graph.x.new_empty(saved_numbers(call)), backward=False, signs_alone=False)
    macros = next(macros for _, macros in prefetch_kernels(run, HOPPER) if macros.get("WARPGROUPS"))
    assert compiles("product_rows.cu", {**macros, "ROW_GROUPS": row_groups}, "sm_90")


@pytest.mark.parametrize(
    ("out_chunks", "in_groups", "slices"),
    [
        (12, 5, 4),
        *(pytest.param(*tile, marks=pytest.mark.slow) for tile in ((1, 6, 2), (12, 7, 2), (7, 7, 2), (8, 8, 2), (5, 6, 3), (8, 10, 2))),
    ],
)
def test_every_size_of_tile_of_a_gradient_compiles(out_chunks, in_groups, slices):
    tile = WarpgroupWeightTile(out_chunks, in_groups, slices)
    for precision in range(3):
        macros = {**tile.defines, "PRECISION": precision, "MAX_PRODUCTS": MAX_PRODUCTS}
        assert compiles(f"{tile.kernel}.cu", macros, "sm_90")


@pytest.mark.parametrize("num_rows", [0, 1, 740, 5_000, 95_000])
@pytest.mark.parametrize("width", [1, 16, 70, 100, 124, 172, 300, 600, MAX_WIDTH])
def test_plans_of_gradients(width, num_rows):
    """Tiles and splits cover all of a gradient, and fit into a block."""
    gpu = HOPPER._replace(num_multiprocessors=132)
    shapes = (Shape(num_rows, width, width), Shape(4, width, 7), Shape(num_rows, width, 0))
    tile, divisions = weight_blocks(shapes, gpu)
    assert tile.shared_bytes <= H100
    assert tile.threads <= 1024
    for shape, division in zip(shapes, divisions, strict=True):
        assert division.splits * division.rows_per_split >= shape.rows
        assert division.num_tiles == tile.num_tiles(shape)


@pytest.mark.parametrize(("width", "asynchronous"), [(64, False), (80, False), (100, True), (124, True), (300, True), (MAX_WIDTH, True)])
def test_gradients_of_wide_weights_are_asynchronous(width, asynchronous):
    """Measured on an H100 for 95,000 rows: with 64 columns they are as fast, with 100 a fifth faster, with 300 a third."""
    shapes, gpu = (Shape(95_000, width, width),) * 2, HOPPER._replace(num_multiprocessors=132)
    assert isinstance(weight_blocks(shapes, gpu)[0], WarpgroupWeightTile) == asynchronous
    assert not isinstance(weight_blocks(shapes, gpu._replace(has_warpgroups=False))[0], WarpgroupWeightTile)


@pytest.mark.parametrize("num_rows", [0, 1, 740, 5_000, 95_000])
@pytest.mark.parametrize("width", [161, 172, 208, 300, 320])
def test_plans(width, num_rows):
    for work in (Work(), Work(leaves=True, follows=True), Work(2, norm=True, leaves=True, follows=True)):
        plan = row_blocks(num_rows, Widths(width, 0, width), HOPPER._replace(num_multiprocessors=132), work)
        assert plan.shared_bytes <= H100
        assert plan.rows * plan.num_tiles >= num_rows
        assert plan.warpgroups
        assert plan.warps % 4 == 0
        assert 16 * plan.warps * plan.column_tiles >= width


@pytest.mark.parametrize(("width", "middle"), [(64, 0), (80, 80), (160, 0), (321, 0), (MAX_WIDTH, 0)])
def test_other_products_stay_as_they_are(width, middle):
    """Narrow products, pairs, and those that are too wide are computed as on other GPUs."""
    widths, gpu = Widths(width, middle, width), HOPPER._replace(num_multiprocessors=132)
    assert row_blocks(95_000, widths, gpu) == row_blocks(95_000, widths, gpu._replace(has_warpgroups=False))


def test_products_of_sums_along_bonds_keep_their_operands_in_shared_memory():
    """A gather writes into the tile where a thread converts it later, which warpgroups do not have."""
    plan = row_blocks(740, Widths(172, 0, 172), HOPPER._replace(num_multiprocessors=132), Work(gathers=True))
    assert plan.resident
    assert not plan.warpgroups
