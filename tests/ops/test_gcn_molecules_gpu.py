"""Blocks that take tiles of whole molecules through all layers are right on a GPU. `pytest -m gpu`."""

import pytest
import torch
from gcn_molecules_cases import OPTIONS, SIZES, make
from gpu_cases import gradient_of, on_gpu
from stack_cases import gcn, run
from test_gcn_layers_gpu import check_one_of_three

from molgcn.cuda_runtime.launch import gpu
from molgcn.ops.gcn_layers_plan import molecule_blocks

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("poison")]


def by_molecules(hidden, seed=0, **options):
    """Return inputs with two layers; with more, activations within rounding of zero would cost more than the bounds."""
    inputs = make(hidden, 2, sizes=SIZES * 100, seed=seed, **options)
    if molecule_blocks(inputs, gpu(torch.device("cuda"))) is None:
        pytest.skip("the GPU has too many multiprocessors for the batch, or too little shared memory")
    return inputs


@pytest.mark.parametrize(("hidden", "tile_nodes"), [(100, 64), (128, 64), (172, 64), (256, 64), (256, 48)])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_every_option(hidden, tile_nodes, options):
    check_one_of_three(lambda seed: by_molecules(hidden, seed, tile_nodes=tile_nodes, **options))


def test_same_bits_on_every_run():
    inputs = on_gpu(by_molecules(128, norm="layer", residual=True), torch.float32)
    first, second = (run(gcn, inputs, gradient_of(inputs)) for _ in range(2))
    for left, right in ((first.outputs, second.outputs), (first.gradients, second.gradients)):
        assert all(torch.equal(tensor, right[name]) for name, tensor in left.items())
