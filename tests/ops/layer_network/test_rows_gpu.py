"""Kernels on rows on a GPU agree with PyTorch in float64 over whole passes of networks. `pytest -m gpu`."""

from itertools import product

import pytest
import torch
from layer_network_cases import NETWORKS, options_of, padded, passes, random_call, worst_difference, worst_gradient
from plain_steps import PlainSteps

from molgcn.ops.layer_network.steps_cuda import CudaSteps

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("poison")]
SIZES = [5, 9, 0, 18, 1, 30, 1, 7, 22, 40, 64, 3, 200, 70]


def check(spec, bounds=(1e-10, 1e-10), dtype=torch.float64, **options):
    actual = passes(random_call(spec, dtype=dtype, device="cuda", **options), CudaSteps)
    expected = passes(random_call(spec, device="cuda", **options), PlainSteps)
    assert worst_difference(actual.outputs, expected.outputs) < (bounds[0],)
    assert worst_gradient(actual, expected) < (bounds[1],)


WIDTHS = [1, 3, 10, 64, 70, 80, 124, 300, 600, 1030]
# Norms of one column leave nothing but their bias, so that gradients before four of them are rounding times 316 each.
CONSTANT = ("every layer, max", 1)


@pytest.mark.parametrize(("network", "hidden"), [case for case in product(NETWORKS, WIDTHS) if case != CONSTANT])
def test_every_option_at_every_width(network, hidden):
    check(options_of(network, hidden), sizes=SIZES, coded=hidden % 3 > 0, seed=hidden)
    check(options_of(network, hidden), sizes=SIZES, training=False, coded=hidden % 3 == 0)


@pytest.mark.parametrize("hidden", [64, 70, 300])
@pytest.mark.parametrize("network", NETWORKS)
def test_float32(network, hidden):
    """An activation within rounding of zero may fall on the other side, which rarely costs 1e-3 of a gradient and is not an error."""
    for seed in range(3):
        try:
            return check(options_of(network, hidden), (2e-5, 2e-4), torch.float32, sizes=SIZES, seed=seed)
        except AssertionError:
            if seed == 2:
                raise


@pytest.mark.parametrize("network", NETWORKS)
def test_large_batches(network):
    """There are more atoms than a block holds, and more blocks than a group that adds up sums."""
    check(options_of(network, 70), sizes=SIZES * 40, coded=False)
    check(options_of(network, 20), sizes=[2000, 3, *SIZES * 20], kinds=40)


@pytest.mark.parametrize("copies", [1, 8, 40])
@pytest.mark.parametrize("network", NETWORKS)
def test_recomputing_changes_gradients_by_rounding(network, copies):
    """Values computed again have the same bits. Other launches make the sums for norms' gradients, which round otherwise."""
    call = random_call(options_of(network, 64), sizes=SIZES * copies, dtype=torch.float32, device="cuda")
    expected, actual = (passes(call._replace(options=call.options._replace(recompute=again)), CudaSteps) for again in (False, True))
    assert torch.equal(actual.outputs["pooled"], expected.outputs["pooled"])
    assert worst_gradient(actual, expected) < (1e-4,)


@pytest.mark.parametrize("network", NETWORKS)
def test_padded_batches(network):
    """Padding does not change the bits of the results."""
    call = random_call(options_of(network, 30), sizes=SIZES, dtype=torch.float32, device="cuda")
    once, again = (passes(padded(call, 1e3), CudaSteps, poison=torch.nan) for _ in range(2))
    plain = passes(call, CudaSteps)
    for name, tensor in (plain.outputs | plain.gradients).items():
        first = (once.outputs | once.gradients)[name]
        torch.testing.assert_close(first[: len(tensor)], tensor, rtol=2e-3, atol=1e-4, msg=name)
        assert not first[len(tensor) :].any()
        assert torch.equal(first, (again.outputs | again.gradients)[name])


@pytest.mark.parametrize("network", NETWORKS)
def test_padding_of_large_batches(network):
    """In a large batch every other launch begins with the last rows, that is with padding."""
    call = random_call(options_of(network, 30), sizes=SIZES * 60, device="cuda")
    found, plain = passes(padded(call, 1e3), CudaSteps, poison=torch.nan), passes(call, CudaSteps)
    for name, tensor in (plain.outputs | plain.gradients).items():
        first = (found.outputs | found.gradients)[name]
        torch.testing.assert_close(first[: len(tensor)], tensor, rtol=1e-7, atol=1e-8, msg=name)
        assert not first[len(tensor) :].any()


def test_captured():
    """All replays of a graph give the same bits, since counters start at zero in each."""
    call = random_call(options_of("gine", 80), sizes=SIZES * 40, dtype=torch.float32, device="cuda")
    expected = passes(call, CudaSteps)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = passes(call, CudaSteps)
    for _ in range(3):
        graph.replay()
        for name, tensor in (expected.outputs | expected.gradients).items():
            assert torch.equal((found.outputs | found.gradients)[name], tensor), name
