"""The layer operator agrees with its float64 oracle; tests/nn/any_graph compares the layer with PyG's."""

import gc
import weakref

import pytest
import torch
from compiler import needs_extension
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pairs import parametrize_pairs

from molgcn.errors import UserError
from molgcn.ops import ConvInputs, conv_graph, gcn_conv, gcn_conv_reference

pytestmark = needs_extension

WIDTHS = [(1, 1), (3, 5), (11, 32), (32, 32), (40, 7), (33, 70), (150, 130)]
DIFFERENTIABLE = ("x", "weight", "bias", "edge_weight")


def random_inputs(num_nodes, num_edges, in_channels, out_channels, *, seed=0, weighted=True, bias=True, dtype=torch.float64, **options):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype)

    edge_index = torch.randint(0, max(num_nodes, 1), (2, num_edges), generator=generator)
    edge_weight = draw(num_edges).abs() + 0.1
    return ConvInputs(
        draw(num_nodes, in_channels),
        draw(out_channels, in_channels),
        draw(out_channels) if bias else None,
        edge_index,
        edge_weight if weighted else None,
        **options,
    )


def uneven(out):
    """Return weights of a sum over `out` whose terms do not cancel."""
    return (1.5 + torch.arange(out.numel(), dtype=torch.float64).cos()).to(out.dtype).reshape(out.shape)


def run(function, inputs):
    """Return the output and the gradients of a weighted sum of it."""
    leaves = {name: getattr(inputs, name).detach().clone().requires_grad_() for name in DIFFERENTIABLE if getattr(inputs, name) is not None}
    out = function(inputs._replace(**leaves))
    gradients = torch.autograd.grad(out, list(leaves.values()), uneven(out))
    return {"out": out.detach(), **dict(zip(leaves, gradients, strict=True))}


def worst(actual, expected):
    """Return the largest relative L2 error, relative to the largest gradient where a gradient cancels to rounding."""
    assert actual.keys() == expected.keys()
    floor = max(1e-3 * max((e.norm().item() for e in expected.values()), default=0.0), 1e-9)
    return max(((actual[k].double() - e).norm() / max(e.norm().item(), floor)).item() for k, e in expected.items())


def double(inputs):
    return ConvInputs(*(value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value for value in inputs))


@parametrize_pairs("widths, weighted, normalize", WIDTHS, [False, True], [False, True])
def test_float64_and_float32(widths, weighted, normalize, instruction_set):
    in_channels, out_channels = widths
    for number, (loops, reverse) in enumerate([(False, False), (True, False), (True, True)]):
        options = {"weighted": weighted, "normalize": normalize, "add_self_loops": loops, "reverse": reverse, "loop_weight": 1.0 + number}
        inputs = random_inputs(90, 300, in_channels, out_channels, seed=number, bias=number > 0, **options)
        expected = run(gcn_conv_reference, inputs)
        assert worst(run(gcn_conv, inputs), expected) < 1e-13
        single = ConvInputs(
            *(value.float() if isinstance(value, torch.Tensor) and value.is_floating_point() else value for value in inputs)
        )
        assert worst(run(gcn_conv, single), run(gcn_conv_reference, double(single))) < 1e-5


@settings(max_examples=60)
@given(
    num_nodes=st.integers(0, 200),
    degree=st.floats(0, 8),
    channels=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    seed=st.integers(0, 2**20),
    flags=st.tuples(st.booleans(), st.booleans(), st.booleans(), st.booleans()),
)
@example(1, 1.0, (2, 1), 1, (True, True, False, False))  # one loop only, whose weight has no effect
def test_random_graphs(num_nodes, degree, channels, seed, flags):
    weighted, normalize, loops, reverse = flags
    options = {"weighted": weighted, "normalize": normalize, "add_self_loops": loops, "reverse": reverse}
    inputs = random_inputs(num_nodes, int(num_nodes * degree), *channels, seed=seed, **options)
    assert worst(run(gcn_conv, inputs), run(gcn_conv_reference, inputs)) < 1e-12


@pytest.mark.parametrize("operator", [gcn_conv, gcn_conv_reference])
def test_a_weight_of_loops_only_has_no_gradient(operator):
    inputs = random_inputs(3, 5, 4, 2)._replace(edge_index=torch.tensor([[0, 1, 1, 2, 2], [0, 1, 1, 2, 2]]))
    assert run(operator, inputs)["edge_weight"].eq(0).all()


def test_a_hub_and_many_isolated_nodes():
    inputs = random_inputs(5000, 20000, 16, 24)
    edges = inputs.edge_index.clone()
    edges[1, ::2] = 7
    edges[0] %= 50
    inputs = inputs._replace(edge_index=edges)
    assert worst(run(gcn_conv, inputs), run(gcn_conv_reference, inputs)) < 1e-12


def test_same_bits_for_any_number_of_threads():
    inputs = random_inputs(20000, 100000, 24, 40, dtype=torch.float32)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            results.append(run(gcn_conv, inputs._replace(edge_index=inputs.edge_index.clone())))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        assert all(torch.equal(other[name], results[0][name]) for name in other)


def test_a_node_of_no_weight_is_zero_and_its_gradient_finite():
    inputs = random_inputs(4, 5, 3, 2, add_self_loops=False)._replace(
        edge_index=torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 1, 0]]), edge_weight=torch.tensor([1.0, 0.0, 2.0, 3.0, 0.0]).double(), bias=None
    )
    result = run(gcn_conv, inputs)
    assert result["out"][0].eq(0).all()
    assert all(value.isfinite().all() for value in result.values())


def test_of_several_loops_the_last_counts():
    inputs = random_inputs(3, 4, 2, 2)._replace(edge_index=torch.tensor([[0, 0, 1, 0], [0, 0, 2, 1]]))
    changed = inputs._replace(edge_weight=inputs.edge_weight * torch.tensor([100.0, 1, 1, 1]).double())
    assert torch.equal(gcn_conv(inputs), gcn_conv(changed))
    assert run(gcn_conv, inputs)["edge_weight"][0] == 0


@pytest.mark.parametrize("weighted", [False, True])
def test_opcheck(weighted):
    inputs = random_inputs(9, 20, 4, 3, weighted=weighted)
    leaves = {name: getattr(inputs, name).requires_grad_() for name in DIFFERENTIABLE if getattr(inputs, name) is not None}
    torch.library.opcheck(torch.ops.molgcn.gcn_conv.default, tuple(inputs._replace(**leaves)))
    detached = [value.detach() if isinstance(value, torch.Tensor) else value for value in inputs]
    arguments = (torch.randn(9, 3).double(), [True, True, True, weighted], *detached)
    torch.library.opcheck(torch.ops.molgcn.gcn_conv_backward.default, arguments)


def test_derivatives_by_finite_differences():
    inputs = random_inputs(5, 9, 3, 2)
    leaves = [getattr(inputs, name).requires_grad_() for name in DIFFERENTIABLE]

    def function(*values):
        return gcn_conv(inputs._replace(**dict(zip(DIFFERENTIABLE, values, strict=True))))

    assert torch.autograd.gradcheck(function, leaves)
    assert torch.autograd.gradgradcheck(function, leaves)


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (3,), (0, 3), ()])
def test_only_the_gradients_that_are_wanted(wanted):
    inputs = random_inputs(30, 60, 5, 6)
    names = [DIFFERENTIABLE[place] for place in wanted]
    full = run(gcn_conv, inputs)
    leaves = {name: getattr(inputs, name).clone().requires_grad_() for name in names}
    out = gcn_conv(inputs._replace(**leaves))
    assert out.requires_grad == bool(names)
    if names:
        gradients = torch.autograd.grad(out, list(leaves.values()), uneven(out))
        assert all(torch.equal(gradient, full[name]) for name, gradient in zip(names, gradients, strict=True))


def test_views_of_any_stride():
    inputs = random_inputs(30, 60, 5, 6)
    strided = inputs._replace(
        x=inputs.x.T.contiguous().T, weight=inputs.weight.T.contiguous().T, edge_index=inputs.edge_index.T.contiguous().T
    )
    assert torch.equal(gcn_conv(strided), gcn_conv(inputs))


# --- the remembered graph ---
@pytest.fixture
def builds(monkeypatch):
    """Count the graphs that are made."""
    made = []
    build = conv_graph.ConvGraph.build.__func__
    monkeypatch.setattr(conv_graph.ConvGraph, "build", classmethod(lambda cls, *args: made.append(args[1:]) or build(cls, *args)))
    return made


def test_made_once_for_layers_epochs_and_backward(builds):
    inputs = random_inputs(30, 60, 5, 5)
    for _ in range(3):
        run(gcn_conv, inputs)
    assert len(builds) == 1
    gcn_conv(inputs._replace(add_self_loops=False))
    gcn_conv(inputs._replace(edge_index=inputs.edge_index.clone()))
    assert len(builds) == 3


def test_made_again_after_the_edges_change(builds):
    inputs = random_inputs(30, 60, 5, 5)
    before = gcn_conv(inputs)
    inputs.edge_index[0, :10] = 3
    after = gcn_conv(inputs)
    assert len(builds) == 2
    assert not torch.equal(before, after)
    assert worst({"out": after}, {"out": gcn_conv_reference(inputs)}) < 1e-13


def test_made_again_for_a_shorter_list_in_the_same_tensor(builds):
    """Assigning `.data` does not change the version, and the old graph would read beyond the weights' end."""
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    for count in (4, 2):
        edge_index.data = edge_index.data[:, :count].clone()
        inputs = random_inputs(4, count, 3, 2)._replace(edge_index=edge_index)
        assert worst({"out": gcn_conv(inputs)}, {"out": gcn_conv_reference(inputs)}) < 1e-13
    assert len(builds) == 2


def test_edge_weights_may_change_in_place():
    inputs = random_inputs(30, 60, 5, 5)
    gcn_conv(inputs)
    inputs.edge_weight.mul_(torch.linspace(1, 3, 60).double())
    assert worst({"out": gcn_conv(inputs)}, {"out": gcn_conv_reference(inputs)}) < 1e-13


def test_forgotten_with_the_tensor():
    inputs = random_inputs(30, 60, 5, 5)
    gcn_conv(inputs)
    graph = weakref.ref(conv_graph.graph_of(inputs.edge_index, 30, True, False))
    assert graph() is not None
    del inputs
    gc.collect()
    assert graph() is None


def test_inference_mode(builds):
    with torch.inference_mode():
        inputs = random_inputs(30, 60, 5, 5)
        assert worst({"out": gcn_conv(inputs)}, {"out": gcn_conv_reference(inputs)}) < 1e-13


def test_compiled_code_uses_the_same_graph(builds):
    inputs = random_inputs(30, 60, 5, 5)

    def two_layers(values):
        return gcn_conv(values._replace(x=gcn_conv(values).relu()))

    expected = run(two_layers, inputs)
    assert worst(run(torch.compile(two_layers, backend="aot_eager", fullgraph=True), inputs), expected) < 1e-14
    assert len(builds) == 1


# --- errors ---
@pytest.mark.parametrize("node", [-1, 30, 2**40])
@pytest.mark.parametrize("row", [0, 1])
def test_a_node_that_is_not_there(node, row):
    inputs = random_inputs(30, 60, 5, 5)
    inputs.edge_index[row, 13] = node
    with pytest.raises(IndexError, match="edge_index has a node outside"):
        gcn_conv(inputs)


@pytest.mark.parametrize(
    ("num_edges", "num_nodes", "add_self_loops"), [(2**31, 1, False), (2**31 - 1, 1, True), (1, 2**31, False), (2**30, 2**30, True)]
)
def test_more_entries_than_are_counted(num_edges, num_nodes, add_self_loops):
    edge_index = torch.zeros(2, 1, dtype=torch.int64).expand(2, num_edges)  # takes no memory
    with pytest.raises(UserError, match="counts up to 2,147,483,647"):
        conv_graph.ConvGraph.build(edge_index, num_nodes, add_self_loops, reverse=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": torch.zeros(30, 4).double()}, "expected x"),
        ({"x": torch.zeros(30, 5).half()}, "float32 or float64"),
        ({"x": torch.zeros(30, 5)}, "expected weight of shape"),
        ({"bias": torch.zeros(4).double()}, "expected bias"),
        ({"edge_weight": torch.zeros(4).double()}, "expected edge_weight"),
        ({"edge_index": torch.zeros(2, 60).int()}, "int64"),
        ({"edge_index": torch.zeros(3, 60).long()}, "edge_index of shape \\[2, 60\\] in torch.int64"),
    ],
    ids=str,
)
def test_wrong_arguments(change, message):
    with pytest.raises(ValueError, match=message):
        gcn_conv(random_inputs(30, 60, 5, 5)._replace(**change))
