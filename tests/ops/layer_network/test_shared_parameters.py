"""The gradient of a parameter that several steps share is the sum of what each of them gives."""

import pytest
import torch
from compiler import needs_extension
from emulated import gpu_memory
from layer_network_cases import Found, network_options, passes, random_call
from tiles_cases import single

from molgcn.ops.layer_network.builder import Builder
from molgcn.ops.layer_network.call import LayerNetworkCall
from molgcn.ops.layer_network.program import Program
from molgcn.ops.layer_network.steps import X
from molgcn.ops.layer_network.steps_cuda import CudaSteps
from molgcn.ops.layer_network.tiles_cuda import TileSteps

WIDTH, LAYERS = 8, 3


def program(scopes: list[str]) -> Program:
    """Return layers whose parameters' names begin with these scopes."""
    builder, h = Builder(WIDTH, None, dropout=0.0), X
    for scope in scopes:
        builder.scope = scope
        h = builder.linear(builder.gather(h, eps="eps", train_eps=True), "lin", WIDTH, relu=True)
        builder.end_layer()
    return builder.program("sum")


def both(sizes: list[int]) -> tuple[LayerNetworkCall, LayerNetworkCall]:
    """Return a network whose layers share their parameters, and one whose layers have equal ones of their own."""
    call = random_call(network_options("gin", WIDTH, WIDTH, 1), sizes=sizes, training=False)
    generator = torch.Generator().manual_seed(3)
    one = [0.4 * torch.randn(shape, generator=generator, dtype=torch.float64) for shape in program([""]).parameters.values()]
    return call._replace(program=program([""] * LAYERS), parameters=one), call._replace(
        program=program([f"{layer}." for layer in range(LAYERS)]), parameters=one * LAYERS
    )


def check(actual: Found | dict[str, torch.Tensor], expected: Found, bound: float) -> None:
    for name in ("eps", "lin.weight", "lin.bias"):
        terms = torch.stack([expected.gradients[f"{layer}.{name}"].double() for layer in range(LAYERS)])
        error = (actual.gradients[name].double() - terms.sum(0)).norm() / terms.norm()
        assert error < bound, name


@pytest.mark.parametrize(
    ("sizes", "cast", "bound"),
    [([5, 9, 1], lambda call: call, 1e-12), ([5, 9, 1], single, 1e-5), pytest.param([150] * 60, single, 1e-5, marks=pytest.mark.slow)],
    ids=["float64", "few", "many"],
)
def test_on_cuda(emulate, sizes, cast, bound):
    with gpu_memory():
        shared, separate = (passes(cast(call), CudaSteps) for call in both(sizes))
    check(shared, separate, bound)


def test_on_tiles(emulate):
    with gpu_memory():
        shared, separate = (passes(single(call), TileSteps) for call in both([5, 9, 1, 30, 60, 60]))
    check(shared, separate, 1e-5)


@needs_extension
def test_on_a_cpu():
    def results(call: LayerNetworkCall) -> Found:
        pooled, statistics, saved = torch.ops.molgcn.layer_network(*call.arguments)
        _, _, gradients = torch.ops.molgcn.layer_network_backward(torch.ones_like(pooled), saved, True, False, *call.arguments)
        return Found({"pooled": pooled, "statistics": statistics}, dict(zip(call.program.parameters, gradients, strict=True)))

    check(*map(results, both([5, 9, 1, 80, 30])), 1e-12)
