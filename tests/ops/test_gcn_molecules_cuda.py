"""Blocks that take tiles of whole molecules through all layers agree with the float64 oracle under emulation."""

import pytest
import torch
from architectures import by_turns
from compiling import compiles
from emulated import forward, gpu_memory, run_emulated
from gcn_molecules_cases import OPTIONS, SIZES, make
from gcn_reference import gcn_reference
from stack_cases import H100, RTX, changed, check_independence, converted, random_batch, random_inputs, run, worst
from test_gcn_rows_cuda import check

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.gcn_layers_macros import layer_macros
from molgcn.ops.gcn_layers_plan import molecule_blocks
from molgcn.ops.gcn_tile_plan import next_fit
from molgcn.ops.gcn_weights_plan import layers_together

HIDDEN = 100
KERNELS = {"gcn_molecules_forward.cu", "gcn_molecules_backward.cu"}
OF_ROWS = {"rows_gather.cu", "rows_gather_grad.cu", "rows_pool.cu"}


@pytest.mark.parametrize("options", [OPTIONS[0], *(pytest.param(options, marks=pytest.mark.slow) for options in OPTIONS[1:])], ids=str)
def test_every_option(emulate, options):
    check(make(HIDDEN, 3, **options))
    assert emulate.sources >= KERNELS
    assert not OF_ROWS & emulate.sources


@pytest.mark.slow
@pytest.mark.parametrize(
    ("channels", "hidden", "tile_nodes"), [(16, 128, 64), (112, 112, 48), (5, 130, 64), (70, 176, 32), (16, 200, 48), (256, 256, 64)]
)
def test_widths_and_tiles(emulate, channels, hidden, tile_nodes):
    check(make(hidden, 2, channels=channels, tile_nodes=tile_nodes, residual=True, sizes=SIZES[:6]))
    assert emulate.sources >= KERNELS


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "bound"), [("tf32", 3e-3), ("bf16", 3e-2)])
def test_lower_precision_is_what_was_asked_for(emulate, precision, bound):
    """Gradients of weights are tiles of 128 x 128 here."""
    inputs = make(HIDDEN, 3, precision=precision)
    check(inputs, bound, 3 * bound)
    assert emulate.sources >= KERNELS
    with pytest.raises(AssertionError):
        check(inputs)


@pytest.mark.parametrize("options", [{"residual": True}, pytest.param({}, marks=pytest.mark.slow)], ids=str)
def test_features_without_a_gradient(emulate, options):
    """Most models need no gradient of the features, and backward then has another kernel."""
    inputs = make(HIDDEN, 2, **options)
    check(changed(inputs, x=inputs.graph.x.detach()))
    assert emulate.sources >= KERNELS


@pytest.mark.parametrize("residual", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_prediction(emulate, residual):
    """Without a gradient only what a residual connection reads leaves a block."""
    inputs = make(HIDDEN, 3, residual=residual)
    expected = run_emulated(inputs).outputs["pooled"]
    with torch.no_grad(), gpu_memory():
        actual = forward(converted(changed(inputs, save_for_backward=False), torch.float32)).pooled
    assert torch.equal(actual, expected)
    assert emulate.sources >= KERNELS


@pytest.mark.slow
def test_weight_gradients_of_a_few_layers_at_a_time(emulate):
    """A launch then begins with the gradient that the launch before has left."""
    emulate.properties = emulate.properties._replace(gradient_bytes=2 * 4 * sum(SIZES) * 112)
    inputs = make(HIDDEN, 5, norm="layer", residual=True)
    assert layers_together(inputs, emulate.properties) == 2
    check(inputs)
    assert emulate.sources >= KERNELS


def test_padded_batches(emulate):
    """Padding for molecules (in no tile), tiles, atoms and bonds gives zero outputs and has no effect on gradients."""
    inputs, more = make(HIDDEN, 2, norm="layer", residual=True), 70
    graph = inputs.graph
    grad = torch.sin(torch.arange(float(HIDDEN) * (len(SIZES) + 2), dtype=torch.float64)).view(-1, HIDDEN)
    expected = run_emulated(inputs, grad[: len(SIZES)])
    padded = changed(
        inputs,
        x=torch.cat([graph.x.detach(), torch.full((more, 11), torch.nan)]).requires_grad_(),
        ptr=torch.cat([graph.ptr, graph.ptr[-1:], graph.ptr[-1:]]),
        rowptr=torch.cat([graph.rowptr, graph.rowptr[-1:].expand(more)]),
        col=torch.cat([graph.col, torch.full((9,), 10**6, dtype=torch.int32)]),
        tile_ptr=torch.cat([graph.tile_ptr, graph.tile_ptr[-1:], graph.tile_ptr[-1:]]),
    )
    actual = run_emulated(padded, grad)
    assert torch.equal(actual.outputs.pop("pooled"), torch.cat([expected.outputs.pop("pooled"), torch.zeros(2, HIDDEN)]))
    assert torch.equal(actual.gradients.pop("x"), torch.cat([expected.gradients.pop("x"), torch.zeros(more, 11)]))
    for name, tensor in expected.gradients.items():
        torch.testing.assert_close(actual.gradients[name], tensor, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.slow
def test_a_broken_promise(emulate):
    """Molecules larger than a tile are NaN, and others and the gradients of parameters are right."""
    sizes = torch.tensor([5, 9, 130, 18, 30, 350, 1, 40])
    inputs = random_inputs(random_batch(sizes.tolist(), 11), HIDDEN, 3, strategy="layer")
    large = sizes > 64
    grad = torch.sin(torch.arange(len(sizes) * HIDDEN, dtype=torch.float64)).view(-1, HIDDEN) * ~large[:, None]
    together = run_emulated(changed(inputs, large_molecules=False, tile_ptr=next_fit(inputs.graph.ptr)), grad)
    exact = run(gcn_reference, converted(inputs, torch.float64), grad)
    assert emulate.sources >= KERNELS
    for results, name, rows in (("outputs", "pooled", large), ("gradients", "x", torch.repeat_interleave(large, sizes))):
        actual, right = (getattr(result, results).pop(name) for result in (together, exact))
        assert actual[rows].isnan().all()
        assert worst({name: actual[~rows]}, {name: right[~rows]}) < 1e-5
    assert worst(together.gradients, exact.gradients) < 5e-5


def test_molecules_do_not_depend_on_each_other(emulate):
    check_independence(run_emulated, make(HIDDEN, 2, norm="layer", residual=True))
    assert emulate.sources >= KERNELS


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS[:2], ids=str)
def test_no_races(emulate, options):
    emulate.find_races = True
    run_emulated(make(HIDDEN, 2, sizes=SIZES[:6], **options))
    assert emulate.sources >= KERNELS


def test_plans():
    """Only large batches of tiles go through all layers at once, if no norm couples molecules and shared memory has room."""

    def plan(hidden, molecules=800, limit=H100, num_layers=12, channels=28, **options):
        return molecule_blocks(make(hidden, num_layers, channels=channels, sizes=[23] * molecules, **options), Gpu(132, limit))

    def shape(it):
        return it.max_layers, it.threads, it.rows, it.min_blocks

    assert shape(plan(97)) == shape(plan(128, norm="layer")) == (16, 256, 64, 2)
    assert shape(plan(172)) == (16, 192, 64, 2)
    assert shape(plan(256, num_layers=20)) == (64, 512, 64, 1)
    assert shape(plan(256, tile_nodes=48)) == (16, 256, 48, 2)
    others = [plan(96), plan(257), plan(128, molecules=400), plan(128, limit=RTX), plan(128, num_layers=64), plan(128, channels=129)]
    others.append(plan(128, norm="batch", training=True))
    inputs = make(128, 2, sizes=[23] * 800)
    for change in ({"tile_ptr": None}, {"large_molecules": True}, {"tile_nodes": 72}):
        others.append(molecule_blocks(changed(inputs, **change), Gpu(132, H100)))
    assert others == [None] * len(others)


@pytest.mark.slow
@pytest.mark.parametrize(("arch", "hidden", "norm"), by_turns([(128, "layer"), (256, None)]))
def test_compiles(arch, hidden, norm):
    inputs = make(hidden, 2, norm=norm, dropout=0.3, training=True, sizes=[23] * 800)
    division = molecule_blocks(inputs, Gpu(132, H100))
    for direction in ("forward", "backward"):
        defines = layer_macros(inputs, division, direction == "backward")
        assert compiles(f"gcn_molecules_{direction}.cu", defines, arch)
