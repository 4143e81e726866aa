"""The CUDA operator agrees with the float64 oracle without a GPU: its kernels run on CPU tensors under emulation.

How tiles are laid out is in test_gcn_tile_layout.py, what only a GPU shows in test_gcn_tile_gpu.py, plans alone in test_gcn_tile_plan.py.
"""

from functools import partial

import emulated
import pytest
import torch
from architectures import ARCHITECTURES, by_turns
from emulated import check
from gcn_molecules_cases import make as molecules
from gcn_reference import gcn_reference
from stack_cases import (
    H100,
    changed,
    check_broken_promise,
    check_independence,
    converted,
    kept_activations,
    layers_of,
    not_finite,
    random_batch,
    random_inputs,
    run,
    with_masks,
    with_nan,
    worst,
    worst_molecule,
)

from molgcn.cuda_runtime.launch import Gpu, launching_by
from molgcn.errors import UserError
from molgcn.ops.gcn_tile_plan import backward_plan, forward_plan, limit_shared_memory, next_fit
from molgcn.ops.schedule import engine_of

SIZES = [5, 9, 18, 1, 30, 1, 7, 22, 40, 64, 3]
LARGE = [5, 70, 3, 200, 1, 8]
SMALL = Gpu(1, H100)  # so that a block has several tiles


def run_emulated(inputs, grad_pooled=None):
    result = emulated.run_emulated(inputs, grad_pooled)
    return result.outputs["pooled"], result.gradients


def check_with_masks(inputs, output_bound, gradient_bound):
    """Check like `check`, with a float64 backward that makes forward's choices of relu, and return the outputs' error."""
    inputs = converted(changed(inputs, tile_ptr=next_fit(inputs.graph.ptr, inputs.graph.tile_nodes)), torch.float32)
    result = emulated.run_emulated(inputs)
    masks = kept_activations(inputs, result.saved, forward_plan(inputs, SMALL))
    exact = converted(inputs, torch.float64)
    error = worst_molecule(result.outputs["pooled"], run(gcn_reference, exact).outputs["pooled"])
    assert error < output_bound
    assert worst(result.gradients, run(with_masks(masks), exact).gradients) < gradient_bound
    return error


OPTIONS = [
    {},
    {"residual": True, "pool": "sum"},
    {"norm": "layer", "residual": True, "last_activation": True, "pool": "max"},
    {"norm": "batch", "add_self_loops": False},
    {"dropout": 0.3, "training": True, "last_activation": True},
]


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        *((SIZES, options) for options in OPTIONS),
        *(pytest.param(LARGE, options, marks=[pytest.mark.slow] if options in OPTIONS[1::2] else []) for options in OPTIONS),
    ],
    ids=str,
)
def test_every_option(emulate, sizes, options):
    check(random_inputs(random_batch(sizes, 11, bonds_per_atom=1.2), 32, 3, **options))


@pytest.mark.parametrize(
    ("channels", "hidden"), [(3, 1), (50, 24), (5, 33), *(pytest.param(*more, marks=pytest.mark.slow) for more in ((20, 20), (64, 64)))]
)
def test_widths(emulate, channels, hidden):
    check(random_inputs(random_batch(SIZES, channels), hidden, 2, residual=True, norm="layer"))


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [80, 128, 172, 256])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_wide(emulate, hidden, options):
    check(random_inputs(random_batch(SIZES[:6], 11), hidden, 2, strategy="tile", **options))


BOUNDS = {"float32": 1e-5, "tf32": 3e-3, "bf16": 3e-2}
ROUNDINGS = [("float32", True), ("bf16", True)]  # from Hopper on, and before
ROUNDINGS += [pytest.param(*other, marks=pytest.mark.slow) for other in (("float32", False), ("tf32", True), ("tf32", False))]


@pytest.mark.slow
@pytest.mark.parametrize("num_multiprocessors", [1, 3])
def test_28_layers(emulate, monkeypatch, num_multiprocessors):
    """Groups have two warps, or four in a batch of few tiles."""
    emulate.properties = Gpu(num_multiprocessors, H100)
    check(random_inputs(random_batch(SIZES, 11, bonds_per_atom=1.2), 32, 28))


@pytest.mark.parametrize("seed", range(2))
def test_what_tensor_cores_cut_off_is_made_up_for(emulate, seed):
    """Otherwise outputs and gradients would be 1e-5 off."""
    check_with_masks(random_inputs(random_batch([9, 18, 5], 11, seed, 1.2), 64, 28, seed=seed), 3e-6, 8e-6)


@pytest.mark.parametrize(("precision", "hopper"), ROUNDINGS)
@pytest.mark.parametrize(("hidden", "tile_nodes"), [(16, 64), (32, 96), pytest.param(32, 64, marks=pytest.mark.slow)])
def test_precision_is_what_was_asked_for(emulate, monkeypatch, hidden, tile_nodes, precision, hopper):
    emulate.hopper = hopper
    inputs = random_inputs(random_batch([*SIZES, 70, 100], 11), hidden, 3, precision=precision, tile_nodes=tile_nodes)
    error = check_with_masks(inputs, BOUNDS[precision], 3 * BOUNDS[precision])
    assert precision == "float32" or error > 1e-5


NEIGHBOURLY = [
    {},
    {"precision": "bf16", "tile_nodes": 48},
    {"strategy": "layer"},
    pytest.param({"norm": "layer", "residual": True, "pool": "max"}, marks=pytest.mark.slow),
    {"strategy": "layer", "norm": "layer", "residual": True, "precision": "bf16"},
]


@pytest.mark.parametrize("options", NEIGHBOURLY, ids=str)
def test_a_molecule_does_not_depend_on_its_neighbours(emulate, options):
    """A molecule's results have the same bits beside atoms in the same tile, and gradients, that are 1e6 times larger."""
    inputs = random_inputs(random_batch([9, 9, 9, 9], 11), 32, 12, **options)
    check_independence(emulated.run_emulated, inputs)


def test_float32_range(emulate):
    """Activations of 1e6 and gradients of 1e-12 keep their accuracy."""
    inputs = random_inputs(random_batch(SIZES, 11), 32, 12)
    inputs = changed(inputs, x=(inputs.graph.x.detach() * 1e6).requires_grad_())
    check(inputs, grad_pooled=torch.full((len(SIZES), 32), 1e-12, dtype=torch.float64), floor=1e-20)


@pytest.mark.parametrize("tile_nodes", [pytest.param(64, marks=pytest.mark.slow), 96])
def test_same_bits_in_any_number_of_rounds(emulate, tile_nodes):
    """Gradients are added in the order of tiles and blocks, and groups of warps take turns."""
    inputs = random_inputs(random_batch([*SIZES, 130] * 3, 11), 32, 2, tile_nodes=tile_nodes)
    first = run_emulated(inputs)[1]
    emulate.properties = emulate.properties._replace(num_barriers=2)
    second = run_emulated(inputs)[1]
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.parametrize("options", [{}, {"norm": "layer", "residual": True, "pool": "max", "last_activation": True}], ids=str)
def test_same_bits_without_code_for_large_molecules(emulate, options):
    inputs = random_inputs(random_batch(SIZES, 11), 32, 3, **options)
    (pooled, gradients), (expected, expected_gradients) = (run_emulated(changed(inputs, large_molecules=large)) for large in (False, True))
    assert torch.equal(pooled, expected)
    assert all(torch.equal(gradient, expected_gradients[name]) for name, gradient in gradients.items())


@pytest.mark.parametrize("hidden", [32, pytest.param(64, marks=pytest.mark.slow)])
def test_a_large_molecule_where_none_was_promised(emulate, hidden):
    check_broken_promise(emulated.run_emulated, hidden)


@pytest.mark.slow
def test_a_tile_wider_than_the_plan_is_no_broken_promise(emulate):
    """Tiles have 128 atoms, but with 172 features there is room for 64."""
    inputs = random_inputs(random_batch([100, 20, 70], 11), 172, 2, strategy="tile", tile_nodes=128)
    assert not inputs.graph.large_molecules
    check(inputs)


def test_sums_of_gradients_beyond_shared_memory(emulate):
    inputs = random_inputs(random_batch(SIZES, 11), 32, 3)
    with limit_shared_memory(16 * 1024):
        plan = backward_plan(changed(inputs, tile_ptr=next_fit(inputs.graph.ptr)), SMALL)
        assert not plan.shared
        check(inputs)


@pytest.mark.parametrize(("with_tiles", "tile_nodes"), [(True, 64), (False, 64), (True, 96)])
def test_padded_batches(emulate, with_tiles, tile_nodes):
    """Padding for molecules, atoms, bonds and tiles gives zero outputs and has no effect on gradients."""
    inputs = random_inputs(random_batch(SIZES, 11), 32, 2, tile_nodes=tile_nodes)
    tiles = next_fit(inputs.graph.ptr, tile_nodes)
    grad = torch.sin(torch.arange(32.0 * (len(SIZES) + 2), dtype=torch.float64)).view(-1, 32)
    expected = run_emulated(inputs, grad[: len(SIZES)])
    junk = torch.full((7, 11), torch.nan)
    padded = changed(
        inputs,
        x=torch.cat([inputs.graph.x.detach(), junk]).requires_grad_(),
        ptr=torch.cat([inputs.graph.ptr, inputs.graph.ptr[-1:], inputs.graph.ptr[-1:]]),
        rowptr=torch.cat([inputs.graph.rowptr, inputs.graph.rowptr[-1:].expand(7)]),
        col=torch.cat([inputs.graph.col, torch.zeros(9, dtype=torch.int32)]),
        tile_ptr=torch.cat([tiles, tiles[-1:], tiles[-1:]]) if with_tiles else None,
    )
    pooled, gradients = run_emulated(padded, grad)
    assert torch.equal(pooled, torch.cat([expected[0], torch.zeros(2, 32)]))
    torch.testing.assert_close(gradients.pop("x"), torch.cat([expected[1].pop("x"), torch.zeros(7, 11)]), rtol=1e-6, atol=1e-6)
    assert worst(gradients, expected[1]) < 5e-6  # more room for tiles may take more warps per tile, which add up in another order


@pytest.mark.parametrize("place", ["x", pytest.param("convs.1.lin.weight", marks=pytest.mark.slow)])
@pytest.mark.parametrize(("precision", "hopper"), ROUNDINGS)
@pytest.mark.parametrize("strategy", ["tile", "layer"])
def test_nan_stays(emulate, monkeypatch, strategy, precision, hopper, place):
    emulate.hopper = hopper
    inputs = with_nan(random_inputs(random_batch(SIZES, 11), 32, 3, precision=precision, strategy=strategy), place)
    expected = not_finite(run(gcn_reference, converted(inputs, torch.float64)))
    assert expected["pooled"]
    assert not_finite(emulated.run_emulated(inputs)) == expected


@pytest.mark.parametrize(
    ("dtype", "hidden", "num_layers", "options", "message"),
    [
        (torch.float32, 8, 2, {"norm": "batch", "training": True}, "norm=batch"),
        (torch.float32, 300, 2, {}, "hidden_channels=300"),
        (torch.float32, 8, 401, {}, "num_layers=401"),
        (torch.float64, 8, 2, {}, "float32"),
    ],
)
def test_what_one_launch_cannot_do_is_an_error_in_words(dtype, hidden, num_layers, options, message):
    inputs = converted(random_inputs(random_batch([5], 3), hidden, num_layers, strategy="tile", **options), dtype)
    with pytest.raises(UserError, match=message):
        emulated.forward(inputs)


@pytest.mark.parametrize(
    ("hidden", "options", "engine"),
    [
        (32, {}, "tile"),
        (96, {"norm": "layer"}, "tile"),
        (97, {}, "rows"),
        (32, {"norm": "batch"}, "tile"),
        (32, {"norm": "batch", "training": True}, "chain"),
        (32, {"recompute": True}, "rows"),
    ],
)
def test_auto_takes_the_fastest_kernels(emulate, hidden, options, engine):
    emulate.properties = Gpu(132, H100, has_clusters=True)
    inputs = converted(random_inputs(random_batch([5], 3), hidden, 2, **options), torch.float32)
    assert engine_of(layers_of(inputs)) == engine
    assert engine_of(layers_of(changed(inputs, strategy="layer"))) == (engine if engine == "chain" else "rows")
    assert engine_of(layers_of(converted(inputs, torch.float64))) == "rows"


def test_half_precision_is_an_error_in_words():
    with pytest.raises(UserError, match="float32 or float64"):
        emulated.forward(converted(random_inputs(random_batch([5], 3), 8, 2), torch.float16))


@pytest.mark.parametrize("needs_grad_x", [True, False])
@pytest.mark.parametrize("make", [partial(random_inputs, random_batch(SIZES, 11), 32), partial(molecules, 100)], ids=["tile", "molecules"])
def test_a_forward_knows_its_backward(emulate, make, needs_grad_x):
    """Exactly the kernels of forward and backward are compiled together with the first one."""
    inputs = make(2, **OPTIONS[2])
    inputs.graph.x.requires_grad_(needs_grad_x)
    emulated.run_emulated(inputs)
    assert emulate.prefetched
    assert all(wanted in emulate.used for wanted in emulate.prefetched)
    assert all(used in emulate.prefetched for used in emulate.used[1:] if used != emulate.used[0])
    assert any(source.endswith("backward.cu") for source, _ in emulate.prefetched)


@pytest.mark.parametrize(("arch", "source"), by_turns([("gcn_tile_forward",), ("gcn_tile_backward",)]))
def test_compiles_for_every_architecture(source, arch):
    """Options and widths alternate over the architectures, so that each architecture and each option is compiled."""
    number = ARCHITECTURES.index(arch)
    options = OPTIONS[number % len(OPTIONS)]
    hidden = (32, 64, 20, 128, 32, 172)[number]
    precision = ("float32", "tf32", "bf16")[number % 3]
    sizes, tile_nodes = {0: ([20] * 20, 48), 4: ([20] * 20, 96)}.get(number, ([5], 64))  # tiles of three row tiles a warp, or few
    large = number % 2 == (source == "gcn_tile_forward")
    hints = {"tile_nodes": tile_nodes, "large_molecules": large}
    inputs = random_inputs(random_batch(sizes, 11), hidden, 3, precision=precision, **hints, **options)
    inputs = converted(changed(inputs, tile_ptr=next_fit(inputs.graph.ptr, tile_nodes)), torch.float32)
    plan = (forward_plan if source == "gcn_tile_forward" else backward_plan)(inputs, Gpu(1, H100))
    assert (plan.row_tiles == 3) == (tile_nodes != 64)
    with launching_by(emulated.Compiler(arch, f"{source}.cu")):
        emulated.run_emulated(inputs)
