"""Networks on tiles of whole molecules on a GPU agree with PyTorch in float64 over whole passes. `pytest -m gpu`."""

import pytest
import torch
from layer_network_cases import options_of, padded, passes, random_call, worst_difference, worst_gradient
from plain_steps import PlainSteps
from tiles_cases import CASES, SIZES, single

from molgcn.ops.layer_network.operator import layer_network
from molgcn.ops.layer_network.tiles_cuda import TileSteps
from molgcn.ops.layer_network.tiles_plan import pays, why_not

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("poison")]


def call_of(network: str, hidden: int, **options):
    return random_call(options_of(network, hidden, num_layers=3), training=CASES[network], device="cuda", **options)


def narrowest(network: str) -> int:
    """Return the smallest width at which gradients in float32 are meaningful.

    The gradient through a layer norm of one column is zero, of which float32 leaves a rounding times 1 / sqrt(eps) at each layer: PyTorch's
    own differ from float64 by up to 4e-2 then, and by up to 1e-3 with two columns.
    """
    spec = options_of(network)
    return 3 if "layer" in (spec.norm, spec.feed_forward_norm) else 1


def check(network: str, hidden: int, **options) -> None:
    """Compare a network in float32 with PyTorch in float64.

    An activation within rounding of zero may fall on the other side, which rarely costs 1e-3 of a gradient and is not an error.
    """
    for seed in range(3):
        call = call_of(network, hidden, seed=seed, **options)
        assert why_not(single(call)) is None
        actual, expected = passes(single(call), TileSteps), passes(call, PlainSteps)
        assert worst_difference(actual.outputs, expected.outputs) < (2e-5,)
        if worst_gradient(actual, expected) < (2e-4,):
            return
    raise AssertionError(worst_gradient(actual, expected))


@pytest.mark.parametrize("hidden", [1, 31, 64])
@pytest.mark.parametrize("network", CASES)
def test_every_option_at_every_width(network, hidden):
    hidden = max(narrowest(network), min(hidden, 32) if options_of(network).feed_forward else hidden)
    check(network, hidden, sizes=SIZES, coded=hidden != 31)


@pytest.mark.parametrize("coded", [True, False])
@pytest.mark.parametrize("network", CASES)
def test_values_computed_again_have_the_same_bits(network, coded):
    """Sums over atoms group their terms differently, since a launch then has one layer in place of four."""
    call = single(call_of(network, 32, sizes=SIZES * 80, coded=coded))
    assert pays(call)
    expected, actual = (passes(call._replace(options=call.options._replace(recompute=again)), TileSteps) for again in (False, True))
    assert torch.equal(actual.outputs["pooled"], expected.outputs["pooled"])
    assert torch.equal(actual.gradients["x"], expected.gradients["x"])
    assert worst_gradient(actual, expected) < (1e-5,)


@pytest.mark.parametrize("network", ["gine", "gcn_edge"])
def test_what_is_kept_for_backward_does_not_change_predictions(network):
    call = single(call_of(network, 32, sizes=SIZES * 80))
    assert pays(call)
    with torch.no_grad():
        kept, not_kept = (layer_network(call._replace(options=call.options._replace(save_for_backward=keep))) for keep in (True, False))
    assert torch.equal(kept.pooled, not_kept.pooled)


@pytest.mark.parametrize("network", ["gine", "gcn_edge", "feed-forward"])
def test_large_batches(network):
    """Blocks have several tiles each."""
    check(network, 32, sizes=[*SIZES * 60, 128, 100])
    check(network, 32, sizes=SIZES * 100, coded=False)


def test_the_operator_takes_tiles_for_large_batches():
    call = single(call_of("gine", 64, sizes=SIZES * 80))
    assert pays(call)
    assert not pays(single(call_of("gine", 64, sizes=SIZES)))
    with torch.no_grad():
        assert torch.equal(layer_network(call).pooled, passes(call, TileSteps).outputs["pooled"])


@pytest.mark.parametrize("network", ["gine", "gin, layer norm, sum"])
def test_same_bits(network):
    """Results do not depend on the run or on whether the launches are captured; padding changes the order of weights' sums only."""
    call = single(call_of(network, 64, sizes=SIZES * 60))
    expected, again = (passes(call, TileSteps) for _ in range(2))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = passes(call, TileSteps)
    graph.replay()
    more = passes(padded(call, torch.nan), TileSteps, poison=torch.nan)
    for name, tensor in (expected.outputs | expected.gradients).items():
        assert torch.equal((again.outputs | again.gradients)[name], tensor), name
        assert torch.equal((captured.outputs | captured.gradients)[name], tensor), name
        beside = (more.outputs | more.gradients)[name]
        torch.testing.assert_close(beside[: len(tensor)], tensor, rtol=1e-3, atol=1e-4, msg=name)
        assert not beside[len(tensor) :].any()
