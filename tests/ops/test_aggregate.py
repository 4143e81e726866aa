"""`molgcn::aggregate` agrees with its float64 oracle on the CPU and on a GPU; test_aggregate_cuda.py has the emulation."""

import pytest
import torch
from aggregate_cases import BOUNDS, WIDTHS, expected_of, gradient_of, leaves, operator, random_inputs, run, worst
from compiler import needs_extension
from hypothesis import given, settings
from hypothesis import strategies as st

from molgcn.errors import UserError
from molgcn.ops import aggregate
from molgcn.ops.aggregate import REDUCTIONS, AggregateInputs
from molgcn.ops.aggregate_reference import aggregate_reference

DEVICES = [pytest.param("cpu", marks=needs_extension), pytest.param("cuda", marks=pytest.mark.gpu)]
on_every_device = pytest.mark.parametrize("device", DEVICES)
of_every_kind = pytest.mark.parametrize("reduce", REDUCTIONS)


@on_every_device
@of_every_kind
@pytest.mark.parametrize(("channels", "weights"), WIDTHS)
def test_against_float64(channels, weights, reduce, device):
    for number, dtype in enumerate(BOUNDS):
        options = {"reverse": number == 1, "num_dst": 30 if number == 1 else 20}
        inputs = random_inputs(channels, weights, hub=20, seed=number, dtype=dtype, device=device, reduce=reduce, **options)
        assert worst(run(operator, inputs), expected_of(inputs)) < BOUNDS[dtype]


@on_every_device
@pytest.mark.parametrize("reduce", ["sum", "mean"])
@pytest.mark.parametrize(("channels", "weights"), WIDTHS)
def test_with_a_nodes_own_features(channels, weights, reduce, device):
    for number, dtype in enumerate(BOUNDS):
        inputs = random_inputs(channels, weights, own=True, hub=20, dtype=dtype, device=device, reduce=reduce, reverse=number == 1)
        assert worst(run(operator, inputs), expected_of(inputs)) < BOUNDS[dtype]


@needs_extension
@of_every_kind
@pytest.mark.parametrize(("channels", "weights"), [(3, 0), (21, 1), (150, 3), (33, 33)])
def test_every_instruction_set(channels, weights, reduce, instruction_set):
    inputs = random_inputs(channels, weights, reduce=reduce)
    assert worst(run(operator, inputs), expected_of(inputs)) < 1e-14


@needs_extension
@settings(max_examples=60)
@given(
    num_src=st.integers(1, 40),
    num_dst=st.integers(0, 40),
    num_edges=st.integers(0, 200),
    width=st.sampled_from(WIDTHS),
    reduce=st.sampled_from(REDUCTIONS),
)
def test_any_graph(num_src, num_dst, num_edges, width, reduce):
    inputs = random_inputs(*width, num_src=num_src, num_dst=num_dst, num_edges=num_edges * (num_dst > 0), reduce=reduce)
    assert worst(run(operator, inputs), expected_of(inputs)) < 1e-13


@on_every_device
@of_every_kind
def test_nodes_and_edges_that_are_not_there(reduce, device):
    for sizes in ({"num_edges": 0}, {"num_src": 0, "num_edges": 0}, {"num_dst": 0, "num_edges": 0}):
        inputs = random_inputs(5, 1, **sizes, reduce=reduce, device=device)
        found = run(operator, inputs)
        assert found["out"].shape == (inputs.num_dst, 5)
        assert not any(tensor.any() for tensor in found.values())


@on_every_device
def test_weights_of_heads_in_every_form(device):
    inputs = random_inputs(12, 3, device=device)
    x, weight = inputs.x, inputs.edge_weight
    expected = aggregate_reference(inputs)
    heads = aggregate(x.view(-1, 3, 4), inputs.edge_index, weight, num_nodes=20)
    assert torch.equal(heads.flatten(1), aggregate(x, inputs.edge_index, weight, num_nodes=20))
    assert worst({"out": heads.flatten(1)}, {"out": expected}) < 1e-14
    each = weight[:, :, None].expand(-1, 3, 4)
    assert worst({"out": aggregate(x.view(-1, 3, 4), inputs.edge_index, each, num_nodes=20).flatten(1)}, {"out": expected}) < 1e-14
    one = aggregate(x, inputs.edge_index, weight[:, 0], num_nodes=20)
    assert worst({"out": one}, {"out": aggregate_reference(inputs._replace(edge_weight=weight[:, :1]))}) < 1e-14


@on_every_device
def test_the_wider_dtype_of_both(device):
    inputs = random_inputs(8, 1, dtype=torch.bfloat16, device=device)
    assert aggregate(inputs.x, inputs.edge_index, inputs.edge_weight.float()).dtype == torch.float32


@on_every_device
def test_equal_largest_neighbours_share_the_gradient(device):
    x = torch.tensor([[1.0], [1.0], [0.0], [1.0]], device=device, requires_grad=True)
    edge_index = torch.tensor([[0, 1, 2, 3], [0, 0, 0, 1]], device=device)
    (found,) = torch.autograd.grad(aggregate(x, edge_index, reduce="max").sum(), x)
    assert found.flatten().tolist() == [0.5, 0.5, 0.0, 1.0]


@on_every_device
def test_not_a_number_stays_where_it_is(device):
    x = torch.tensor([[1.0], [torch.nan], [2.0]], device=device)
    edge_index = torch.tensor([[1, 0, 2, 2], [0, 0, 0, 1]], device=device)
    assert aggregate(x, edge_index, reduce="max").flatten()[:2].isnan().tolist() == [True, False]


@on_every_device
@of_every_kind
@pytest.mark.parametrize("weights", [0, 3])
def test_second_derivatives(weights, reduce, device):
    inputs = random_inputs(6, weights, num_src=10, num_dst=8, num_edges=20, reduce=reduce, device=device)
    x = inputs.x + torch.rand(inputs.x.shape, device=device, dtype=torch.float64)  # nothing equal
    given = [x.requires_grad_(), *([inputs.edge_weight.requires_grad_()] if weights else [])]

    def of(x, weight=None):
        return operator(inputs._replace(x=x, edge_weight=weight))

    assert torch.autograd.gradcheck(of, given)
    assert torch.autograd.gradgradcheck(of, given)


@on_every_device
@pytest.mark.parametrize("weights", [0, 3])
def test_second_derivatives_with_own_features(weights, device):
    inputs = random_inputs(6, weights, own=True, num_src=9, num_edges=20, device=device)
    given = {name: tensor.requires_grad_() for name, tensor in leaves(inputs).items()}

    def of(*tensors):
        return operator(inputs._replace(**dict(zip(given, tensors, strict=True))))

    assert torch.autograd.gradcheck(of, tuple(given.values()))
    assert torch.autograd.gradgradcheck(of, tuple(given.values()))


@on_every_device
@pytest.mark.parametrize(("weights", "own"), [(0, False), (0, True), (1, False), (6, True)])
def test_opcheck(weights, own, device):
    inputs = random_inputs(6, weights, own=own, device=device, dtype=torch.float32)
    torch.library.opcheck(torch.ops.molgcn.aggregate.default, tuple(inputs._replace(x=inputs.x.requires_grad_())))
    arguments = (gradient_of(aggregate_reference(inputs)), None, [True, weights > 0, own], *inputs._replace(x=inputs.x.detach()))
    torch.library.opcheck(torch.ops.molgcn.aggregate_backward.default, arguments)


@on_every_device
def test_compiled_code_gives_the_same(device):
    inputs = random_inputs(6, 6, device=device)

    def two(values):
        return operator(values._replace(x=operator(values._replace(num_dst=30)).sin()))

    assert worst(run(torch.compile(two, backend="aot_eager", fullgraph=True), inputs), run(two, inputs)) < 1e-14


@on_every_device
def test_strides_do_not_matter(device):
    inputs = random_inputs(12, 3, device=device)
    strided = inputs._replace(x=inputs.x.T.contiguous().T, edge_weight=inputs.edge_weight.T.contiguous().T)
    assert all(map(torch.equal, run(operator, strided).values(), run(operator, inputs).values()))
    alike = inputs._replace(x=inputs.x[:1, :1].expand(30, 12), edge_weight=None)
    assert worst(run(operator, alike), expected_of(alike)) < 1e-14


@on_every_device
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.zeros(30)}, "expected x"),
        ({"edge_index": torch.zeros(3, 150).long()}, "edge_index of shape \\[2, 150\\] in torch.int64"),
        ({"edge_weight": torch.zeros(149)}, "edge_weight of shape \\[150, 1\\]"),
        ({"edge_weight": torch.zeros(150, 5)}, "do not divide"),
        ({"edge_weight": torch.zeros(150, 2, 6)}, "expected edge_weight"),
        ({"reduce": "min"}, "none of sum, mean, max"),
        ({"strategy": "best"}, "none of auto, vertex"),
        ({"strategy": "edge"}, "deterministic=False"),
        ({"num_nodes": -1}, "must not be negative"),
        ({"own_weight": torch.ones(2), "num_nodes": 30}, "expected own_weight of shape"),
        ({"own_weight": torch.ones(1)}, "as many sources as targets"),
        ({"own_weight": torch.ones(1), "num_nodes": 30, "reduce": "max"}, "own_weight needs"),
    ],
    ids=str,
)
def test_wrong_arguments(change, message, device):
    inputs = random_inputs(12, 0, dtype=torch.float32, device=device)
    arguments = {"x": inputs.x, "edge_index": inputs.edge_index, "num_nodes": 20}
    arguments |= {name: value.to(device) if isinstance(value, torch.Tensor) else value for name, value in change.items()}
    with pytest.raises(ValueError, match=message):
        aggregate(**arguments)


@on_every_device
def test_a_node_that_is_not_there(device):
    inputs = random_inputs(3, 0, device=device)
    inputs.edge_index[0, 13] = 30
    with pytest.raises(IndexError, match=r"edge_index\[0, 13\] is 30, but there are 30 source nodes"):
        operator(inputs)


def test_more_edges_than_32_bits_count():
    edge_index = torch.zeros(2, 1, dtype=torch.int64).expand(2, 2**31)  # takes no memory
    with pytest.raises(UserError, match="counts up to 2,147,483,647"):
        AggregateInputs(torch.zeros(1, 1), edge_index, None, None, 1).graph  # noqa: B018
