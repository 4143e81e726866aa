"""`molgcn::aggregate` is right on a GPU for all strategies, hubs, captures, sizes and streams. `pytest -m gpu`."""

import pytest
import torch
from aggregate_cases import expected_of, operator, random_inputs, run, worst

from molgcn.errors import UserError
from molgcn.ops import aggregate
from molgcn.ops.aggregate import REDUCTIONS

pytestmark = pytest.mark.gpu

STRATEGIES = [
    {"strategy": "vertex"},
    {"strategy": "neighbor_group", "group_size": 8},
    {"strategy": "neighbor_group", "group_size": 3, "deterministic": False, "dimension_workers": 16},
    {"strategy": "edge", "deterministic": False},
]


@pytest.mark.parametrize("options", STRATEGIES, ids=str)
@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize(("channels", "weights"), [(64, 0), (33, 1), (24, 4), (300, 300)])
def test_every_strategy(channels, weights, reduce, options):
    """The bound is the rounding of 700 numbers that are added one after another."""
    if reduce == "max" and options["strategy"] == "edge":
        pytest.skip("maxima are not added")
    inputs = random_inputs(channels, weights, hub=700, dtype=torch.float32, device="cuda", reduce=reduce, **options)
    assert worst(run(operator, inputs), expected_of(inputs)) < 5e-6


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_a_million_neighbours_among_leaves(reduce):
    inputs = random_inputs(
        16, 1, num_src=1_000_000, num_dst=1_000_000, num_edges=2_000_000, hub=1_000_000, dtype=torch.float32, device="cuda", reduce=reduce
    )
    first, second = run(operator, inputs), run(operator, inputs)
    assert worst(first, expected_of(inputs)) < 1e-6
    assert all(map(torch.equal, first.values(), second.values()))


def test_more_weights_than_32_bits_count():
    """The bound is the rounding of a thousand numbers that are added one after another."""
    num_edges, channels = 70_000, 32_768
    x = torch.randn(64, channels, device="cuda", requires_grad=True)
    edge_index = torch.randint(0, 64, (2, num_edges), device="cuda")
    weight = torch.ones(1, device="cuda").expand(num_edges, channels).contiguous().requires_grad_()
    out = aggregate(x, edge_index, weight)
    grad_x, grad_weight = torch.autograd.grad(out, (x, weight), x.detach())
    plain = aggregate(x.detach(), edge_index)
    assert worst({"out": out, "x": grad_x}, {"out": plain, "x": aggregate(x.detach(), edge_index.flip(0))}) < 5e-6
    source, target = edge_index[:, -1]
    assert torch.equal(grad_weight[-1], x[source] * x[target])


def test_captured_once_the_edges_are_known():
    inputs = random_inputs(32, 1, hub=700, dtype=torch.float32, device="cuda")
    x = inputs.x.clone().requires_grad_()

    def step():
        return torch.autograd.grad(operator(inputs._replace(x=x)).square().sum(), x)[0]

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = step()
    with torch.no_grad():
        x.mul_(-3)
    graph.replay()
    assert torch.equal(found, step())
    with torch.cuda.graph(torch.cuda.CUDAGraph()), pytest.raises(UserError, match="Run the same step once before"):
        aggregate(x, inputs.edge_index.view_as(inputs.edge_index), num_nodes=20)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_compiled(mode):
    inputs = random_inputs(32, 32, dtype=torch.float32, device="cuda")

    def two(values):
        return operator(values._replace(x=operator(values._replace(num_dst=30)).sin()))

    compiled, expected = torch.compile(two, mode=mode), run(two, inputs)
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        assert worst(run(compiled, inputs), expected) < 1e-6


def test_edges_dropped_while_another_stream_is_at_work():
    x, stream = torch.randn(2000, 64, device="cuda"), torch.cuda.Stream()
    edge_index = torch.randint(0, 2000, (2, 200_000), device="cuda")
    expected = aggregate(x, edge_index)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        found = aggregate(x, edge_index)
    del edge_index
    rest = [torch.zeros(50_000, dtype=torch.int32, device="cuda") for _ in range(64)]
    torch.cuda.synchronize()
    assert torch.equal(found, expected)
    del rest


def test_autocast_leaves_the_dtype_and_sums_in_float32():
    x = torch.full((5000, 8), 1.0, device="cuda", dtype=torch.bfloat16)
    edge_index = torch.stack([torch.arange(5000), torch.zeros(5000, dtype=torch.int64)]).cuda()
    with torch.autocast("cuda", torch.bfloat16):
        out = aggregate(x, edge_index)
    assert out.dtype == torch.bfloat16
    assert out[0, 0].item() == pytest.approx(5000, rel=2**-8)  # bfloat16 alone stops at 256
