"""Networks small enough for compute-sanitizer, one per kind of kernel, with several tiles per block: benchmarks/results/sanitizer.md."""

import pytest
import torch
from gcn_reference import gcn_reference
from gpu_cases import gradient_of, on_gpu
from merged_leaves_cases import inputs_of
from stack_cases import H100, converted, errors, gcn, random_batch, random_inputs, run, worst
from test_gcn_loss import check as check_loss
from test_gcn_loss import device as device
from test_gcn_loss import emulate_loss as emulate_loss

from molgcn.cuda_runtime.launch import Gpu, Launcher, launching_by

SIZES = [5, 9, 18, 1, 30, 7, 22, 40, 64, 3] * 2
LARGE = [5, 70, 3, 200, 1, 8, 30, 40]
ROWS = [max(size, 2) for size in SIZES]
BOUNDS = {"float32": (1e-5, 1e-4), "tf32": (3e-3, 5e-2), "bf16": (3e-2, 3e-1)}  # some activations lie within rounding of zero


class TwoMultiprocessors(Launcher):
    def gpu(self, device):
        return Gpu(2, H100)


@pytest.fixture
def two_multiprocessors(device, request):
    if device == "cpu":
        request.getfixturevalue("emulate").properties = Gpu(2, H100)
        yield
    else:
        with launching_by(TwoMultiprocessors()):
            yield


@pytest.mark.slow
@pytest.mark.parametrize(
    ("hidden", "sizes", "options"),
    [
        (16, SIZES, {"tile_nodes": 48, "norm": "layer", "residual": True, "pool": "max"}),
        (32, SIZES, {}),
        (32, LARGE, {"precision": "bf16"}),
        (32, SIZES, {"precision": "bf16", "tile_nodes": 48}),
        (32, [*SIZES, 90], {"tile_nodes": 96}),
        (32, [*SIZES, 90], {"tile_nodes": 96, "precision": "tf32"}),
        (32, SIZES, {"dropout": 0.3, "training": True}),
        (64, LARGE, {"norm": "layer", "residual": True, "pool": "sum"}),
        (64, SIZES, {"precision": "bf16"}),
        (96, SIZES, {"precision": "bf16"}),
        (96, [120, 128, 100, 90], {"tile_nodes": 128, "last_activation": True}),
        (172, SIZES, {"strategy": "tile"}),
    ],
    ids=str,
)
def test_stack_with_its_loss(device, two_multiprocessors, hidden, sizes, options):
    inputs = random_inputs(random_batch(sizes, 11, bonds_per_atom=1.2), hidden, 3, **options)
    check_loss(inputs, device, 3, bounds=BOUNDS[inputs.options.precision])


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"precision": "bf16", "tile_nodes": 48}, {"precision": "tf32"}, {"tile_nodes": 96}], ids=str)
def test_merged_leaves_with_their_loss(device, two_multiprocessors, options):
    merged, *atoms = inputs_of(ROWS, 11, 32, 3, **options)
    check_loss(merged, device, 2, bounds=BOUNDS[merged.options.precision], merged_from=tuple(atoms))


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("hidden", "options"),
    [
        (32, {"norm": "batch", "residual": True, "training": True}),
        (172, {"norm": "batch", "residual": True, "training": True}),
        (172, {"norm": "layer", "dropout": 0.3, "training": True}),
        (320, {"norm": "batch", "training": True}),
        (520, {}),
    ],
    ids=str,
)
def test_layers(hidden, options):
    inputs = random_inputs(random_batch(SIZES, 11, bonds_per_atom=1.2), hidden, 3, **{"strategy": "layer", **options})
    actual = run(gcn, on_gpu(inputs, torch.float32), gradient_of(inputs))
    expected = run(gcn_reference, on_gpu(converted(inputs, torch.float64), torch.float64), gradient_of(inputs))
    assert worst(actual.outputs, expected.outputs) < 1e-5
    floor = 1e-4 * max(gradient.norm().item() for gradient in expected.gradients.values())
    assert max(errors(actual.gradients, expected.gradients, floor).values()) < 1e-3
