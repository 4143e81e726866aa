"""Matrix products of the layer network on tensor cores are right in emulation and compile for every architecture."""

from itertools import product

import pytest
import torch
from architectures import ARCHITECTURES, architectures
from emulated import Compiler, gpu_memory
from products_backward_cases import worst_backward
from products_cases import call_of, launch_all, worst_forward
from stack_cases import H100, RTX

from molgcn.cuda_runtime.launch import Gpu, launching_by
from molgcn.ops.layer_network.products_plan import MAX_WIDTH, Widths, Work, fits_shared, row_blocks
from molgcn.ops.layer_network.weights_plan import Shape, weight_blocks

BONDS = {"conv": "gine", "edge_channels": 5}
GATES = {"conv": "gated_gcn", "edge_channels": 20, "norm": "batch", "residual": True, "mlp_norm": False}
SAGE = {"conv": "sage", "mlp_norm": False, "feed_forward": False}


@pytest.fixture(autouse=True)
def poisoned():
    with torch.no_grad(), gpu_memory():
        yield


@pytest.mark.parametrize(
    ("in_channels", "hidden", "real", "padding", "options"),
    [
        (11, 20, 17, 3, {"num_layers": 1, "feed_forward": False, "mlp_norm": False}),
        (20, 20, 17, 3, {"num_layers": 1, "residual": True}),
        pytest.param(11, 20, 40, 0, {"num_layers": 1}, marks=pytest.mark.slow),
        pytest.param(16, 32, 75, 9, BONDS, marks=pytest.mark.slow),
        pytest.param(5, 70, 40, 3, {"conv": "sage", "mlp_norm": False, "project": True, "num_layers": 1}, marks=pytest.mark.slow),
        pytest.param(11, 20, 0, 5, {"num_layers": 1}, marks=pytest.mark.slow),
        (20, 20, 75, 9, {**SAGE, "norm": "batch", "residual": True}),
        pytest.param(11, 20, 75, 9, {**SAGE, "residual": True, "project": True}, marks=pytest.mark.slow),
        pytest.param(20, 20, 40, 3, {**SAGE, "norm": "batch", "root_weight": False}, marks=pytest.mark.slow),
        pytest.param(20, 204, 40, 3, {**SAGE, "norm": "batch", "residual": True}, marks=pytest.mark.slow),
        pytest.param(11, 20, 0, 5, SAGE, marks=pytest.mark.slow),
        (20, 20, 75, 9, {**SAGE, "norm": "batch", "residual": True, "activation": "gelu"}),
        (20, 18, 75, 9, GATES),
        pytest.param(11, 70, 75, 9, {**GATES, "feed_forward": False}, marks=pytest.mark.slow),
        pytest.param(78, 78, 40, 3, GATES, marks=pytest.mark.slow),
        pytest.param(20, 40, 40, 3, {**GATES, "conv": "gatv2", "heads": 4}, marks=pytest.mark.slow),
        pytest.param(11, 20, 17, 3, {"num_layers": 1, "activation": "elu", "mlp_activation": "silu"}, marks=pytest.mark.slow),
    ],
)
def test_products_are_as_precise_as_float32(emulate, in_channels, hidden, real, padding, options):
    call = call_of(in_channels, hidden, real, padding, **options)
    assert worst_forward(call) < 2e-7
    errors = worst_backward(call)
    assert max(errors["rows"], errors["masked"]) < 2e-7
    assert errors["weights"] < 2e-6
    assert errors["biases"] < 1e-6
    assert errors["norms"] < 1e-6


@pytest.mark.parametrize("mean", [1.0, 100.0, 1000.0])
@pytest.mark.parametrize("options", [{**SAGE, "norm": "batch"}, {"num_layers": 1, "norm": "batch"}], ids=["sage", "gin"])
def test_moments_of_products_far_from_zero(emulate, mean, options):
    """The moments that a product leaves are those of the rows that it writes, however many deviations their mean is from 0."""
    call = call_of(20, 20, 300, 9, **options)
    for parameter in call.parameters:
        if parameter.dim() == 1:
            parameter += mean
    assert worst_forward(call) < 2e-7


def test_more_padding_than_rows(emulate):
    """Blocks that have padding alone leave no parts of norms that count."""
    emulate.properties = Gpu(20, H100)
    call = call_of(11, 20, 75, 200, num_layers=1, norm="batch")
    assert worst_forward(call) < 2e-7
    errors = worst_backward(call)
    assert max(errors["rows"], errors["masked"]) < 2e-7
    assert errors["weights"] < 2e-6
    assert errors["norms"] < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(("real", "padding"), [(8300, 40), (300, 8040)])
def test_parts_of_many_blocks(emulate, real, padding):
    """A launch merges the parts that many blocks leave before the next launch reads them."""
    emulate.properties = Gpu(200, H100)
    call = call_of(3, 8, real, padding, feed_forward=False, num_layers=1)
    assert worst_forward(call) < 2e-7
    assert worst_backward(call)["norms"] < 1e-6
    assert "layer_end_merge.cu" in emulate.sources


def test_as_many_groups_as_there_are_barriers(emulate):
    """Each group of warps has a named barrier. Few columns leave room for more groups than a block has barriers."""
    assert worst_forward(call_of(11, 12, 32 * 40, num_layers=1, feed_forward=False, mlp_norm=False)) < 2e-7


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {**SAGE, "norm": "batch"}], ids=["gin", "sage"])
@pytest.mark.parametrize(("precision", "bound"), [("tf32", 3e-4), ("bf16", 3e-3)])
def test_lower_precision_is_what_was_asked_for(emulate, precision, bound, options):
    call = call_of(11, 20, 40, precision=precision, num_layers=1, **options)
    assert 1e-5 < worst_forward(call) < bound
    assert 1e-5 < worst_backward(call)["weights"] < 3 * bound


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, BONDS, {**SAGE, "norm": "batch", "residual": True}], ids=["gin", "gine", "sage"])
def test_barriers_order_all_accesses_to_shared_memory(emulate, options):
    emulate.find_races = True
    launch_all(call_of(11, 20, 90, **{"num_layers": 1, **options}))


@pytest.mark.slow
def test_products_with_little_shared_memory(emulate):
    """Operands of two weights do not fit in shared memory, and tiles of two rows are brought in turns."""
    emulate.properties, emulate.find_races = Gpu(1, RTX), True
    call = call_of(128, 128, 90, 5, num_layers=1, norm="batch", **SAGE)
    assert worst_forward(call) < 2e-7
    errors = worst_backward(call)
    assert max(errors["rows"], errors["masked"]) < 2e-7
    assert any(macros.get("ARRAYS") == 2 and not macros["RESIDENT"] for _, macros in emulate.used)
    launch_all(call)


@pytest.mark.parametrize("arch", architectures("sm_80"))
def test_compiles_for_every_architecture(arch):
    number = ARCHITECTURES.index(arch)
    hidden, precision = (20, 70, 20, 32, 300, 172)[number], ("float32", "tf32", "bf16")[number % 3]
    with launching_by(compiler := Compiler(arch)):
        launch_all(call_of(11, hidden, 5, precision=precision, num_layers=1, feed_forward=number % 2 == 0, dropout=0.3))
    assert {name for name in compiler.sources if name.startswith("product_")} == {
        f"product_{name}.cu" for name in ("operands", "rows", "weights")
    }


@pytest.mark.parametrize("limit", [H100, RTX])
@pytest.mark.parametrize("num_rows", [0, 1, 740, 95_000])
@pytest.mark.parametrize("width", [1, 16, 70, 80, 160, 172, 300, 600, MAX_WIDTH])
def test_plans(width, num_rows, limit):
    """Blocks cover all rows and columns, and fit into the smallest shared memory."""
    for other, work, middle in product((11, width), (Work(), Work(gathers=True), Work(2, norm=True, leaves=True)), (0, 80)):
        if (work.norm and other > 512) or (middle and not fits_shared(num_rows, Widths(other, middle, width), Gpu(132, limit))):
            continue
        for widths in (Widths(other, middle, width), Widths(other, width, width, beside=True), Widths(other, 0, width, arrays=2)):
            if widths.arrays > 1 and (work.norm or other > 512):
                continue
            if widths.beside and not fits_shared(num_rows, widths, Gpu(132, limit)):
                continue
            plan = row_blocks(num_rows, widths, Gpu(132, limit), work)
            assert plan.shared_bytes <= limit
            assert plan.threads <= 32 * 21
            assert 16 * plan.warps * plan.column_tiles >= width
            assert plan.rows * plan.num_tiles >= num_rows
    shapes = (Shape(num_rows, width, width), Shape(4, width, 7), Shape(num_rows, width, 0))
    tile, divisions = weight_blocks(shapes, Gpu(132, limit))
    assert tile.shared_bytes <= limit
    assert tile.threads <= 1024
    for shape, weights in zip(shapes, divisions, strict=True):
        assert weights.splits * weights.rows_per_split >= shape.rows
        assert weights.num_tiles * tile.side**2 >= shape.out * shape.in_
