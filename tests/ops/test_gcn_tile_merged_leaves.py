"""The CUDA operator on batches with merged leaves gives the float64 oracle's results for all atoms, emulated and on a GPU."""

import emulated
import numpy as np
import pytest
import torch
from architectures import ARCHITECTURES, architectures
from gcn_reference import gcn_reference
from gpu_cases import gradient_of, on_gpu
from leaf_cases import random_trees
from merged_leaves_cases import inputs_of, summed
from stack_cases import (
    Result,
    changed,
    check_independence,
    converted,
    gcn,
    kept_activations,
    planned_alone,
    random_inputs,
    run,
    with_masks,
    worst,
    worst_molecule,
)
from torch import Tensor

from molgcn.cuda_runtime.launch import gpu, launching_by
from molgcn.errors import UserError
from molgcn.ops import gcn_tile_plan
from molgcn.ops.gcn_network import GcnCall
from molgcn.ops.gcn_tile_plan import next_fit

SIZES = [5, 9, 18, 1, 30, 2, 7, 22, 40, 64, 3]
LARGE = [5, 130, 3, 400, 1, 8]
OPTIONS = [
    {},
    {"residual": True, "pool": "sum", "tile_nodes": 96},
    {"norm": "layer", "residual": True, "last_activation": True, "pool": "max"},
    *(
        pytest.param(options, marks=pytest.mark.slow)
        for options in ({"norm": "batch", "add_self_loops": False}, {"tile_nodes": 96}, {"tile_nodes": 48})
    ),
]
DEVICES = ["emulated", pytest.param("cuda", marks=pytest.mark.gpu)]


@pytest.fixture(params=DEVICES)
def operator(request):
    """Return a function that runs the kernels in float32 and can return the activations that forward kept, see `with_masks`."""
    on_device = request.param == "cuda"
    request.getfixturevalue("poison" if on_device else "emulate")

    def operate(inputs: GcnCall, masks: bool = False, grad_pooled: Tensor | None = None) -> tuple[Result, Tensor | None]:
        inputs = on_gpu(inputs, torch.float32) if on_device else converted(inputs, torch.float32)
        inputs = changed(inputs, tile_ptr=next_fit(inputs.graph.ptr, inputs.graph.tile_nodes))
        if on_device:
            result = run(gcn, inputs, gradient_of(inputs) if grad_pooled is None else grad_pooled.cuda())
        else:
            result = emulated.run_emulated(inputs, grad_pooled)
        if not masks:
            return result, None
        saved = planned_alone(inputs).saved if on_device else result.saved
        return result, kept_activations(inputs, saved, gcn_tile_plan.forward_plan(inputs, gpu(inputs.graph.x.device))).cpu()

    return operate


def check(operator, given, output_bound=1e-5, gradient_bound=5e-5, masks=False) -> None:
    merged, whole, rows = given
    actual, kept = operator(merged, masks)
    exact = converted(whole, torch.float64)
    expected = run(gcn_reference, exact)
    if kept is not None:
        expected.gradients = run(with_masks(kept[:, rows]), exact).gradients
    gradients, right = {name: gradient.cpu() for name, gradient in actual.gradients.items()}, summed(expected.gradients, rows)
    if whole.network.pool == "max":  # where branches are alike rounding chooses whose atom is the oracle's largest
        of_molecules = torch.repeat_interleave(torch.arange(merged.graph.num_graphs), merged.graph.ptr.diff())
        gradients, right = summed(gradients, of_molecules), summed(right, of_molecules)
    assert worst_molecule(actual.outputs["pooled"].cpu(), expected.outputs["pooled"]) < output_bound
    assert worst(gradients, right) < gradient_bound


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_option(operator, options):
    check(operator, inputs_of(SIZES, 11, 32, 3, **options))


@pytest.mark.parametrize("options", OPTIONS[::2][:2], ids=str)
def test_large_molecules(operator, options):
    check(operator, inputs_of(LARGE, 11, 32, 3, **options))


@pytest.mark.parametrize(("channels", "hidden"), [(50, 24), *(pytest.param(*one, marks=pytest.mark.slow) for one in ((3, 1), (11, 64)))])
def test_widths(operator, channels, hidden):
    check(operator, inputs_of(SIZES, channels, hidden, 2, ring_bonds=0.2, residual=True, norm="layer"))


@pytest.mark.parametrize(
    ("sizes", "precision", "bound", "tile_nodes"),
    [
        (LARGE, "bf16", 3e-2, 64),
        pytest.param(SIZES, "bf16", 3e-2, 64, marks=pytest.mark.slow),
        pytest.param(SIZES, "bf16", 3e-2, 96, marks=pytest.mark.slow),
        pytest.param(SIZES, "tf32", 3e-3, 64, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_lower_precision(operator, sizes, precision, bound, tile_nodes):
    check(operator, inputs_of(sizes, 11, 32, 3, precision=precision, tile_nodes=tile_nodes), bound, 3 * bound, masks=True)


def test_28_layers(operator):
    check(operator, inputs_of([18] * 20, 11, 32, 28))


def test_a_molecule_does_not_depend_on_its_neighbours(operator):
    inputs = inputs_of([9, 9, 18, 30], 11, 32, 6)[0]
    check_independence(lambda inputs, grad: operator(inputs, grad_pooled=grad)[0], inputs)


def test_nothing_to_fold_gives_the_same_bits(emulate):
    """A batch without equal leaves gives the same bits if it is marked as merged."""
    inputs = random_inputs(random_trees([9, 18, 30], 11, kinds=60).batch(slice(None)), 32, 3)
    first, second = (emulated.run_emulated(changed(inputs, leaves_merged=merged)) for merged in (False, True))
    for name, tensor in (first.outputs | first.gradients).items():
        assert torch.equal((second.outputs | second.gradients)[name], tensor), name


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_same_bits_whichever_warps_run_ahead(emulate, precision):
    emulate.properties = emulate.properties._replace(num_barriers=3)
    inputs = inputs_of(SIZES, 11, 32, 3, precision=precision)[0]
    first = emulated.run_emulated(inputs)
    for emulate.slice_of_warps in (40, -40):
        second = emulated.run_emulated(inputs)
        for name, tensor in (first.outputs | first.gradients).items():
            assert torch.equal((second.outputs | second.gradients)[name], tensor), name


@pytest.mark.parametrize("arch", architectures("sm_80"))
def test_compiles_for_every_architecture(arch):
    number = ARCHITECTURES.index(arch)
    hidden, precision = (32, 32, 64)[number // 2], ("float32", "tf32", "bf16")[number % 3]
    inputs = converted(inputs_of(SIZES, 11, hidden, 2, precision=precision)[0], torch.float32)
    with launching_by(compiler := emulated.Compiler(arch)):
        emulated.run_emulated(changed(inputs, tile_ptr=next_fit(inputs.graph.ptr, 64)))
    assert compiler.sources == {"gcn_tile_forward.cu", "gcn_tile_backward.cu"}


def test_what_cannot_take_it_says_so(emulate):
    merged = converted(inputs_of(SIZES, 11, 32, 3)[0], torch.float32)
    with pytest.raises(ValueError, match="CPU does not take merged leaves"):
        gcn(merged)
    for options in ({"strategy": "layer"}, {"norm": "batch", "training": True}):
        with pytest.raises(UserError, match="do not take merged leaves"):
            emulated.forward(converted(inputs_of(SIZES, 11, 32, 3, **options)[0], torch.float32))


@pytest.mark.gpu
def test_dropout_tells_atoms_apart():
    merged = on_gpu(inputs_of(SIZES, 11, 32, 3, dropout=0.5)[0], torch.float32)
    gcn(merged)  # in evaluation there is none
    with pytest.raises(ValueError, match=r"dropout=0\.5"):
        gcn(changed(merged, training=True))


@pytest.mark.gpu
@pytest.mark.parametrize("tiles", [40, 600, 1000, 1200])
def test_many_tiles(poison, tiles):
    """Groups have every size; the same kernels compute the expected results on all atoms, with the same rounding."""
    merged, whole, rows = inputs_of([18] * 3 * tiles, 11, 32, 6, tiles, tile_nodes=64)
    actual, expected = (run(gcn, on_gpu(inputs, torch.float32), uniform_gradient(whole)) for inputs in (merged, whole))
    assert worst_molecule(actual.outputs["pooled"], expected.outputs["pooled"]) < 1e-6
    assert worst(actual.gradients, summed(expected.gradients, rows.cuda())) < 5e-5


def uniform_gradient(inputs: GcnCall) -> Tensor:
    """Return a gradient of the pooled rows whose sums do not cancel."""
    return torch.from_numpy(np.random.default_rng(0).uniform(0.5, 1.5, (inputs.graph.num_graphs, inputs.network.hidden_channels))).cuda()
