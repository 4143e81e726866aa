"""The CUDA operator is right on a GPU: against float64 and PyG, captured, poisoned, bit for bit. `pytest -m gpu`."""

import itertools

import pytest
import torch
from gcn_reference import gcn_reference
from gpu_cases import SIZES, check_nothing, gradient_of, on_gpu
from stack_cases import (
    changed,
    check_broken_promise,
    check_independence,
    gcn,
    kept_activations,
    layers_of,
    not_finite,
    planned_alone,
    random_batch,
    random_inputs,
    run,
    with_masks,
    with_nan,
    worst,
    worst_molecule,
)
from test_gcn_tile_cuda import NEIGHBOURLY

from molgcn.cuda_runtime.launch import gpu
from molgcn.nn import GCN
from molgcn.ops.gcn_tile_plan import forward_plan, limit_shared_memory, next_fit

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("poison")]

OPTIONS = [
    dict(
        zip(("norm", "residual", "add_self_loops", "last_activation", "pool", "dropout"), values, strict=True),
        training=values[0] != "batch",
    )
    for values in itertools.product(
        (None, "batch", "layer"), (False, True), (False, True), (False, True), ("mean", "sum", "max"), (0.0, 0.3)
    )
]


LOWER_PRECISIONS = pytest.mark.parametrize(("precision", "bound"), [("tf32", 3e-3), ("bf16", 3e-2)])


def check(inputs, output_bound=1e-5, gradient_bound=5e-5, grad_pooled=None, floor=1e-9):
    if grad_pooled is None:
        grad_pooled = gradient_of(inputs)
    actual = run(gcn, on_gpu(inputs, torch.float32), grad_pooled)
    expected = run(gcn_reference, on_gpu(inputs, torch.float64), grad_pooled)
    assert worst_molecule(actual.outputs["pooled"], expected.outputs["pooled"], floor) < output_bound
    assert worst(actual.gradients, expected.gradients, floor) < gradient_bound


def check_with_masks(inputs, output_bound=1e-5, gradient_bound=5e-5, grad_pooled=None):
    """Check like `check`, with relu's choices taken from the operator's own forward, see `with_masks`."""
    if grad_pooled is None:
        grad_pooled = gradient_of(inputs)
    on_device = on_gpu(inputs, torch.float32)
    on_device = changed(on_device, tile_ptr=next_fit(on_device.graph.ptr, on_device.graph.tile_nodes))
    actual = run(gcn, on_device, grad_pooled)
    masks = kept_activations(on_device, planned_alone(on_device).saved, forward_plan(on_device, gpu(on_device.graph.x.device)))
    exact = on_gpu(inputs, torch.float64)
    expected = run(with_masks(masks), exact, grad_pooled)
    assert worst_molecule(actual.outputs["pooled"], gcn_reference(exact)[0]) < output_bound
    assert worst(actual.gradients, expected.gradients) < gradient_bound


@pytest.mark.parametrize("number", range(0, len(OPTIONS), 5))
def test_options(number):
    hidden = (32, 20, 64)[number % 3]
    check(random_inputs(random_batch(SIZES, 11, number, 1.2), hidden, 1 + number % 4, seed=number, **OPTIONS[number]))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("channels", "hidden"), [(3, 1), (300, 16), (50, 24), (20, 20), (11, 33), (64, 64), (5, 128), (28, 172), (9, 256)])
def test_widths(channels, hidden, seed):
    inputs = random_inputs(random_batch(SIZES, channels, seed), hidden, 3, seed=seed, residual=True, norm="layer", strategy="tile")
    grad = gradient_of(inputs)
    if hidden == 1:  # a gradient is one number: where its terms cancel, as 55 : 1 with both signs of sin, so does its accuracy
        grad = grad.abs()
    check_with_masks(inputs, grad_pooled=grad)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("limit", [99, 163, 227])
def test_28_layers_in_every_plan(limit, seed):
    with limit_shared_memory(limit * 1024):
        check_with_masks(random_inputs(random_batch(SIZES, 11, seed, 1.2), 32, 28, seed=seed))


@pytest.mark.parametrize("hidden", [32, 64])
def test_a_large_molecule_where_none_was_promised(hidden):
    check_broken_promise(lambda inputs, grad_pooled: run(gcn, on_gpu(inputs, torch.float32), grad_pooled.cuda()), hidden)


@pytest.mark.parametrize(("hidden", "channels"), [(32, 43), (16, 70)])
@pytest.mark.parametrize("large", [[], [70, 200]], ids=["tiles", "large"])
def test_more_warps_than_ins_of_one_piece_in_bf16(hidden, channels, large):
    sizes = [40] * (2 * gpu(torch.device("cuda", 0)).num_multiprocessors) + large
    check(random_inputs(random_batch(sizes, channels, bonds_per_atom=1.2), hidden, 2, precision="bf16"), 3e-2, 1e-1)


@pytest.mark.parametrize("hidden", [72, 96, 160, 224])
def test_rows_in_bf16_whose_size_is_no_power_of_two(hidden):
    inputs = random_inputs(random_batch([40] * 1000, 11, bonds_per_atom=1.2), hidden, 2, precision="bf16", strategy="tile")
    check(inputs, 3e-2, 1e-1, 1 + gradient_of(inputs))  # whose sums over all molecules do not cancel


@pytest.mark.parametrize("hidden", [16, 64, 96, 128])
def test_28_layers_of_every_width(hidden):
    """Truncation by tensor cores grows with the width."""
    check_with_masks(random_inputs(random_batch(SIZES, 11), hidden, 28, strategy="tile"))


@pytest.mark.parametrize(("hidden", "count"), [(64, 2000), (64, 3000), (64, 4000), (80, 2000), (128, 2000), (172, 2000)])
def test_widths_in_many_tiles(hidden, count):
    check_with_masks(random_inputs(random_batch([18] * count, 11), hidden, 3, strategy="tile"))


@pytest.mark.parametrize("tiles", [40, 600, 1000, 1200])
def test_28_layers_in_groups_of_every_size(tiles):
    """Batches with more tiles get fewer warps per tile."""
    check_with_masks(random_inputs(random_batch([18] * 3 * tiles, 11, tiles), 32, 28, seed=tiles))


@LOWER_PRECISIONS
@pytest.mark.parametrize("hidden", [16, 32, 64, 128])
def test_lower_precision(hidden, precision, bound):
    check_with_masks(random_inputs(random_batch(SIZES, 11), hidden, 3, precision=precision, strategy="tile"), bound, 3 * bound)


def test_tiles_of_128_rows():
    inputs = random_inputs(random_batch([100, 120, 90, 30, 70, 200], 11), 32, 4, tile_nodes=128)
    inputs = changed(inputs, tile_ptr=torch.tensor([0, 1, 2, 4, 5, 6], dtype=torch.int32))
    plan = forward_plan(inputs, gpu(torch.device("cuda")))
    assert 16 * plan.warps * plan.row_tiles == 128
    check(inputs)


@pytest.mark.parametrize("count", [3, 600, 2000])
@pytest.mark.parametrize("hidden", [16, 32, 64])
def test_tiles_of_48_rows(hidden, count):
    """The batch also has molecules that are larger than a tile."""
    check_with_masks(random_inputs(random_batch([18, 9, 20, 1, 30, 60] * (count // 3), 11), hidden, 12, tile_nodes=48))


@pytest.mark.parametrize("count", [3, 600, 4200])
@pytest.mark.parametrize("hidden", [16, 32])
def test_tiles_of_96_rows(hidden, count):
    """The batch also has molecules that are larger than a tile."""
    check_with_masks(random_inputs(random_batch([18, 90, 20, 1, 30, 160] * (count // 3), 11), hidden, 12, tile_nodes=96))


@LOWER_PRECISIONS
@pytest.mark.parametrize("count", [3000, 4000])
def test_many_tiles_in_lower_precision(count, precision, bound):
    check_with_masks(random_inputs(random_batch([18] * count, 11), 64, 3, precision=precision), bound, 3 * bound)


@LOWER_PRECISIONS
@pytest.mark.parametrize("tile_nodes", [48, 96])
def test_tiles_of_three_row_tiles_a_warp_in_lower_precision(tile_nodes, precision, bound):
    inputs = random_inputs(random_batch([18, 9, 20] * 700, 11), 32, 3, precision=precision, tile_nodes=tile_nodes)
    check_with_masks(inputs, bound, 3 * bound)


@pytest.mark.parametrize("num_layers", [1, 2, 100, 300])
def test_any_depth(num_layers):
    check(random_inputs(random_batch(SIZES, 11), 16, num_layers, norm="layer", residual=True, last_activation=True), 1e-5, 1e-3)


def test_float32_range():
    """Activations of 1e6 and gradients of 1e-12 keep their accuracy."""
    inputs = random_inputs(random_batch(SIZES, 11), 32, 12)
    inputs = changed(inputs, x=(inputs.graph.x.detach() * 1e6).requires_grad_())
    check(inputs, grad_pooled=torch.full((len(SIZES), 32), 1e-12, dtype=torch.float64, device="cuda"), floor=1e-20)


@pytest.mark.parametrize("place", ["x", "convs.1.lin.weight"])
@pytest.mark.parametrize("precision", ["float32", "tf32", "bf16"])
@pytest.mark.parametrize(("strategy", "count"), [("tile", 1), ("tile", 100), ("layer", 1)])
def test_nan_stays(strategy, count, precision, place):
    inputs = with_nan(random_inputs(random_batch(SIZES * count, 11), 32, 3, precision=precision, strategy=strategy), place)
    expected = not_finite(run(gcn_reference, on_gpu(inputs, torch.float64), gradient_of(inputs)))
    actual = not_finite(run(gcn, on_gpu(inputs, torch.float32), gradient_of(inputs)))
    if place != "x":  # which atoms it reaches goes by relu's choices, and they by rounding
        assert expected.pop("x") and actual.pop("x")
    assert expected["pooled"]
    assert actual == expected


@pytest.mark.parametrize("hidden", [32, 128])
@pytest.mark.parametrize("options", NEIGHBOURLY, ids=str)
def test_a_molecule_does_not_depend_on_its_neighbours(options, hidden):
    """A molecule's results have the same bits beside atoms and gradients that are 1e6 times larger."""
    inputs = random_inputs(random_batch([9, 9, 9, 9], 11), hidden, 12, **options)
    check_independence(lambda inputs, grad: run(gcn, on_gpu(inputs, torch.float32), grad.cuda()), inputs)


def test_same_bits_on_every_run():
    inputs = on_gpu(random_inputs(random_batch(SIZES * 100, 11), 32, 6), torch.float32)
    first = run(gcn, inputs, gradient_of(inputs))
    for _ in range(20):
        again = run(gcn, inputs, gradient_of(inputs))
        assert all(torch.equal(first.gradients[name], again.gradients[name]) for name in first.gradients)


@pytest.mark.parametrize(
    "options", [{}, {"norm": "layer", "residual": True, "pool": "max"}, {"last_activation": True, "pool": "sum"}], ids=str
)
def test_against_pyg_with_copied_weights(options):
    batch = random_batch(SIZES, 11).to("cuda")
    fused = GCN(11, 32, 4, 3, backend="fused", **options).cuda()
    pyg = GCN(11, 32, 4, 3, backend="pyg", **options).cuda()
    pyg.load_state_dict(fused.state_dict())
    predictions = [model(given) for model, given in ((fused, batch), (pyg, batch.to_pyg()))]
    torch.testing.assert_close(*predictions, rtol=1e-4, atol=1e-5)
    for prediction in predictions:
        prediction.square().sum().backward()
    for (name, left), (_, right) in zip(fused.named_parameters(), pyg.named_parameters(), strict=True):
        torch.testing.assert_close(left.grad, right.grad, rtol=1e-3, atol=1e-4 * right.grad.abs().max().item(), msg=name)


def test_captured_step_sees_new_inputs_and_draws_new_dropout():
    batch = random_batch(SIZES, 11).to("cuda")
    batch.tile_ptr  # noqa: B018  computed on the host, before capture
    model = GCN(11, 32, 3, 2, backend="fused", dropout=0.5).cuda()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            model(batch).sum().backward()
    torch.cuda.current_stream().wait_stream(stream)
    model.zero_grad(set_to_none=False)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = model(batch)
        out.sum().backward()
    drawn = []
    for _ in range(3):
        graph.replay()
        drawn.append(out.clone())
    assert not torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[1], drawn[2])

    model.eval()
    with torch.no_grad():
        model(batch)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = model(batch)
        batch.x.mul_(2.0)
        graph.replay()
        torch.testing.assert_close(captured, model(batch), rtol=0, atol=0)


def test_opcheck():
    inputs = on_gpu(random_inputs(random_batch([5, 9], 11), 32, 2, norm="layer"), torch.float32)
    checks = ("test_schema", "test_faketensor", "test_autograd_registration")
    torch.library.opcheck(torch.ops.molgcn.layer_network, layers_of(inputs).arguments, test_utils=checks)


def test_batches_without_atoms_or_molecules():
    check_nothing(on_gpu(random_inputs(random_batch([5], 11), 32, 2), torch.float32))
