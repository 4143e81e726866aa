"""Blocks that go through many tiles are right on a GPU that has room for them. `pytest -m gpu`."""

import pytest
import torch
from gpu_cases import gradient_of, on_gpu
from stack_cases import changed, random_batch, random_inputs, run
from test_gcn_layers_gpu import check_one_of_three

from molgcn.cuda_runtime.launch import gpu
from molgcn.ops import message_network
from molgcn.ops.gcn_layers_plan import blocks

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("poison")]


def make(seed=0, **options):
    """Return inputs with two layers; with more, activations within rounding of zero would cost more than the bounds."""
    inputs = random_inputs(random_batch([23] * 1700, 11, seed, 1.1), 172, 2, seed=seed, norm="batch", training=True, **options)
    if not blocks(inputs, gpu(torch.device("cuda"))).streams:
        pytest.skip("the batch has too few tiles, or a multiprocessor too little shared memory")
    return changed(inputs, strategy="layer")


@pytest.mark.parametrize(
    "options",
    [
        {"residual": True, "last_activation": True},
        {"dropout": 0.3, "pool": "max", "residual": True},
        {"pool": "sum", "add_self_loops": False},
    ],
    ids=str,
)
def test_every_option(options):
    check_one_of_three(lambda seed: make(seed, **options))


def test_same_bits_on_every_run():
    """Some tiles have more bonds to other tiles than room for the atoms at their ends."""
    inputs = on_gpu(make(residual=True, last_activation=True), torch.float32)
    first, second = (run(message_network, inputs, gradient_of(inputs)) for _ in range(2))
    for left, right in ((first.outputs, second.outputs), (first.gradients, second.gradients)):
        assert all(torch.equal(tensor, right[name]) for name, tensor in left.items())
