"""Every fused layer gives the results and gradients of PyG's layer on every device and any graph."""

import copy
import io

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_cases import DEVICES, EACH_ONCE, LAYERS, WIDTH, assert_close, inputs_for, name_of, pair, random_graph, results

from molgcn import nn as ours

each_layer = pytest.mark.parametrize("case", LAYERS, ids=name_of)
each_once = pytest.mark.parametrize("case", EACH_ONCE, ids=name_of)
on_each_device = pytest.mark.parametrize("device", DEVICES)


@on_each_device
@each_layer
def test_the_numbers_are_pygs(case, device):
    fused, pyg = pair(case, device=device)
    arguments = inputs_for(case, random_graph(), device=device)
    assert fused.why_not(*arguments) is None
    assert_close(results(fused, *arguments), results(pyg, *arguments), 1e-12)


@on_each_device
@each_layer
def test_float32(case, device):
    """Errors against float64 are a few roundings, and at most three times PyG's."""
    edge_index = random_graph(hub=True, num_edges=600)
    exact = results(pair(case)[1], *inputs_for(case, edge_index))
    fused, _ = pair(case, torch.float32, device)
    found = results(fused, *inputs_for(case, edge_index, dtype=torch.float32, device=device))
    assert_close([tensor.cpu() for tensor in found], exact, 1e-5)


@each_once
def test_another_default_device(case):
    """Tensors on the CPU give the CPU's results, wherever PyTorch makes new tensors."""
    (fused, _), arguments = pair(case), inputs_for(case, random_graph())
    expected = results(fused, *arguments)
    arguments = inputs_for(case, random_graph())  # another edge list, of which nothing is remembered
    with torch.device("meta"):
        found = results(fused, *arguments)
    assert_close(found, expected, 0.0)


@on_each_device
@each_once
@pytest.mark.parametrize("graph", ["no edges", "one node", "loops only", "hub"])
def test_uncommon_graphs(case, graph, device):
    num_nodes = 1 if graph == "one node" else 40
    edges = {"no edges": torch.empty(2, 0, dtype=torch.int64), "one node": torch.zeros(2, 3, dtype=torch.int64)}
    edges |= {"loops only": torch.arange(40).repeat(2, 1), "hub": random_graph(hub=True, num_edges=900)}
    fused, pyg = pair(case, device=device)
    arguments = inputs_for(case, edges[graph], num_nodes, device=device)
    assert fused.why_not(*arguments) is None
    assert_close(results(fused, *arguments), results(pyg, *arguments), 1e-11)


@each_once
@settings(max_examples=15)
@given(num_nodes=st.integers(1, 30), degree=st.floats(0, 5), seed=st.integers(0, 2**20))
def test_random_graphs(case, num_nodes, degree, seed):
    fused, pyg = pair(case)
    arguments = inputs_for(case, random_graph(num_nodes, int(degree * num_nodes), seed), num_nodes, seed=seed)
    assert_close(results(fused, *arguments), results(pyg, *arguments), 1e-11)


@on_each_device
@pytest.mark.parametrize("case", [case for case in EACH_ONCE if case[0] not in ("GCNConv", "GINEConv")], ids=name_of)
@pytest.mark.parametrize("num_targets", [25, 40])
def test_bipartite_graphs(case, num_targets, device):
    name, arguments, options, _ = case
    if len(arguments) == 2:
        case = (name, ((WIDTH, 3), arguments[1]), options, False)
    fused, pyg = pair(case, device=device)
    x_source = torch.randn(40, WIDTH, dtype=torch.float64, device=device)
    x_target = torch.randn(num_targets, 3 if len(arguments) == 2 else WIDTH, dtype=torch.float64, device=device)
    edge_index = random_graph(num_targets).to(device)
    assert fused.why_not((x_source, x_target), edge_index) is None
    torch.testing.assert_close(fused((x_source, x_target), edge_index), pyg((x_source, x_target), edge_index), rtol=1e-12, atol=1e-12)
    with pytest.raises(IndexError):
        fused((x_source, x_target[:10]), edge_index)


@on_each_device
@each_once
def test_second_derivatives(case, device):
    found = []
    for layer in pair(case, device=device):
        arguments = inputs_for(case, random_graph(12, 30), 12, device=device)
        leaves = [arguments[0], *layer.parameters()]
        first = torch.autograd.grad(layer(*arguments).square().sum(), leaves, create_graph=True)
        found.append(torch.autograd.grad(sum(gradient.square().sum() for gradient in first), leaves))
    assert_close(*found, 1e-10)


@on_each_device
@each_once
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast(case, dtype, device):
    """Dtypes under autocast are PyG's, and results are no further from those in float32 than PyG's, but for rounding."""
    fused, pyg = pair(case, torch.float32, device)
    arguments = inputs_for(case, random_graph(), dtype=torch.float32, device=device)
    exact = results(pyg, *arguments)
    with torch.autocast(device, dtype):
        assert fused.why_not(*arguments) is None
        assert fused(*arguments).dtype == pyg(*arguments).dtype
        found, theirs = results(fused, *arguments), results(pyg, *arguments)
    for actual, other, wanted in zip(found, theirs, exact, strict=True):
        bound = 2 * (other.float() - wanted).norm() + 0.004 * wanted.norm()
        assert (actual.float() - wanted).norm() <= bound


@on_each_device
@each_once
def test_torch_compile(case, device):
    fused, _ = pair(case, device=device)
    arguments = inputs_for(case, random_graph(), device=device)
    expected = results(fused, *arguments)
    compiled = torch.compile(fused, backend="aot_eager", fullgraph=True)
    assert_close(results(compiled, *arguments), expected, 1e-12)


@on_each_device
@each_layer
def test_the_same_bits_each_time(case, device):
    fused, _ = pair(case, torch.float32, device)
    arguments = inputs_for(case, random_graph(hub=True, num_edges=600), dtype=torch.float32, device=device)
    for first, second in zip(results(fused, *arguments), results(fused, *arguments), strict=True):
        assert torch.equal(first, second)


@pytest.mark.gpu
@each_once
def test_cuda_graphs(case):
    """A captured step, replayed with other features, gives the bits of the same step run eagerly."""
    fused, _ = pair(case, torch.float32, "cuda")
    arguments = inputs_for(case, random_graph(), dtype=torch.float32, device="cuda")
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        results(fused, *arguments)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        captured = results(fused, *arguments)
    with torch.no_grad():
        arguments[0].mul_(2)
    graph.replay()
    for replayed, eager in zip(captured, results(fused, *arguments), strict=True):
        assert torch.equal(replayed, eager)


@each_layer
def test_names_and_copies(case):
    fused, pyg = pair(case)
    assert isinstance(fused, type(pyg)) and str(fused) == str(pyg)
    assert list(fused.state_dict()) == list(pyg.state_dict())
    arguments = inputs_for(case, random_graph())
    out, buffer = fused(*arguments), io.BytesIO()
    torch.save(fused, buffer)
    buffer.seek(0)
    shared = copy.deepcopy(fused).share_memory()
    for other in (copy.deepcopy(fused), torch.load(buffer, weights_only=False), shared):
        assert type(other) is type(fused) and torch.equal(other(*arguments), out)


@each_once
def test_it_is_initialised_as_pygs(case):
    layers = []
    for module in (ours, __import__("torch_geometric").nn):
        torch.manual_seed(3)
        given = [argument() if callable(argument) else argument for argument in case[1]]
        layers.append(getattr(module, ("Fused" if module is ours else "") + case[0])(*given, **case[2]))
    for left, right in zip(*(layer.state_dict().values() for layer in layers), strict=True):
        assert torch.equal(left, right)


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv", "SAGEConv"])
def test_a_width_that_the_first_input_decides(name):
    layer = getattr(ours, f"Fused{name}")(-1, 5)
    x, edge_index = torch.randn(40, WIDTH), random_graph()
    assert layer(x, edge_index).shape == (40, 5)
    assert layer.why_not(x, edge_index) is None


@on_each_device
@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv"])
def test_attention_dropout(name, device):
    """In training every call drops other weights, as many as PyG drops; in evaluation none is dropped."""
    fused, pyg = pair((name, (WIDTH, 5), {"dropout": 0.5}, False), device=device)
    x, edge_index = inputs_for(("", (), {}, False), random_graph(hub=True, num_edges=4000), device=device)
    assert fused.why_not(x, edge_index) is None
    assert not torch.equal(fused(x, edge_index), fused(x, edge_index))
    torch.manual_seed(5)
    first = fused(x, edge_index)
    torch.manual_seed(5)
    assert torch.equal(first, fused(x, edge_index))
    mean = torch.stack([fused(x, edge_index) for _ in range(400)]).mean(0)
    exact = fused.eval()(x, edge_index)
    assert (mean - exact).norm() < 0.1 * exact.norm()
    torch.testing.assert_close(fused(x, edge_index), pyg.eval()(x, edge_index), rtol=1e-12, atol=1e-12)


@on_each_device
def test_gradients_of_edge_weights_through_the_normalisation(device):
    case = LAYERS[0]
    fused, pyg = pair(case, device=device)
    x, edge_index = inputs_for(case, random_graph(40, 150), device=device)
    edge_index = edge_index[:, edge_index[0] != edge_index[1]]  # PyG gives all loops at a node the last one's gradient
    weight = (torch.rand(edge_index.shape[1], dtype=torch.float64, device=device) + 0.1).requires_grad_()
    assert_close(results(fused, x, edge_index, weight), results(pyg, x, edge_index, weight), 1e-12)
