"""All layers with batch statistics in one launch are right on a GPU that has clusters. `pytest -m gpu`."""

import pytest
import torch
from gpu_cases import SIZES, gradient_of, on_gpu
from stack_cases import changed, gcn, random_batch, random_inputs, run
from test_gcn_layers_gpu import check, check_one_of_three

from molgcn.cuda_runtime.launch import Launcher, launching_by

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("poison", "chained")]

OPTIONS = [
    {},
    {"residual": True, "last_activation": True, "add_self_loops": False},
    {"residual": True, "last_activation": True, "pool": "max", "dropout": 0.3},
    {"pool": "sum", "dropout": 0.3, "add_self_loops": False},
]


@pytest.fixture
def chained():
    """Assert that layers were not launched one by one."""
    if torch.cuda.get_device_capability()[0] < 9:
        pytest.skip("no clusters")
    found = set()

    class Recording(Launcher):
        def kernel(self, source, *args):
            found.add(source)
            return super().kernel(source, *args)

    with launching_by(Recording()):
        yield
    assert {"gcn_chain_forward.cu", "gcn_chain_backward.cu"} <= found


@pytest.mark.parametrize(("hidden", "times"), [(172, 1), (172, 6), (208, 2), (100, 6), (32, 8), (64, 2)])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_options(options, hidden, times):
    """Cases range from one cluster to nearly all multiprocessors, with 8 to 32 atoms per block."""

    def make(seed):
        batch = random_batch(SIZES * times, 28, seed, 1.1)
        return random_inputs(batch, hidden, 3, seed=seed, norm="batch", training=True, **options)

    check_one_of_three(make)


@pytest.mark.parametrize("precision", ["tf32", "bf16"])
def test_lower_precision_is_what_was_asked_for(precision):
    inputs = random_inputs(random_batch(SIZES, 11), 172, 3, precision=precision, norm="batch", training=True)
    check(inputs, 3e-3, 3e-2)
    with pytest.raises(AssertionError):
        check(inputs)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_same_bits_on_every_run(options):
    inputs = on_gpu(random_inputs(random_batch(SIZES * 6, 28), 172, 8, norm="batch", training=True, **options), torch.float32)
    inputs = changed(inputs, strategy="layer")
    first = run(gcn, inputs, gradient_of(inputs))
    for _ in range(20):
        again = run(gcn, inputs, gradient_of(inputs))
        for name, tensor in (first.outputs | first.gradients).items():
            assert torch.equal(tensor, (again.outputs | again.gradients)[name]), name
