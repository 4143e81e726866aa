"""FusedGCNConv gives the results and gradients of PyG's GCNConv from the same weights."""

import pytest
import torch
import torch_geometric
from compiler import needs_extension
from gcn_cases import STAR, assert_same, pair, random_graph
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.nn.conv.utils import cheatsheet

from molgcn.nn import FusedGCNConv

pytestmark = needs_extension


@settings(max_examples=80)
@given(
    num_nodes=st.integers(1, 120),
    degree=st.floats(0, 6),
    channels=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    seed=st.integers(0, 2**20),
    weighted=st.booleans(),
    normalize=st.booleans(),
    add_self_loops=st.booleans(),
    improved=st.booleans(),
    bias=st.booleans(),
    reverse=st.booleans(),
)
@example(1, 1.0, (1, 7), 121, True, True, False, False, True, False)  # one loop only, whose weight has no effect
def test_random_graphs(num_nodes, degree, channels, seed, weighted, normalize, add_self_loops, improved, bias, reverse):
    torch.manual_seed(seed)
    edge_index = random_graph(num_nodes, int(degree * num_nodes), seed)
    edge_weight = torch.rand(edge_index.shape[1], dtype=torch.double) + 0.1 if weighted else None
    fused, pyg = pair(
        *channels,
        improved=improved and weighted,  # see test_improved
        normalize=normalize,
        add_self_loops=add_self_loops and normalize,
        bias=bias,
        flow="target_to_source" if reverse else "source_to_target",
    )
    sums = torch.zeros(num_nodes).index_add(0, edge_index[0 if reverse else 1], torch.ones(edge_index.shape[1]))
    if weighted and normalize and not add_self_loops and (sums == 0).any():
        edge_weight.requires_grad_(False)  # PyG's gradient is NaN there
        x = torch.randn(num_nodes, channels[0], dtype=torch.double)
        assert torch.allclose(fused(x, edge_index, edge_weight), pyg(x, edge_index, edge_weight), rtol=1e-12, atol=1e-12)
        return
    x = torch.randn(num_nodes, channels[0], dtype=torch.double)
    if weighted and normalize and not add_self_loops and (edge_index[0] == edge_index[1]).all():
        found = assert_same(fused, pyg, x, edge_index, edge_weight, without=("edge_weight",))
        assert found["edge_weight"].eq(0).all()  # loops only: their weights have no effect, and PyG's gradient is rounding
        return
    assert_same(fused, pyg, x, edge_index, edge_weight)


def test_its_documentation_names_the_paper_as_pygs_does(monkeypatch):
    monkeypatch.setattr(torch_geometric.nn.conv, "FusedGCNConv", FusedGCNConv, raising=False)
    for of_layer in (cheatsheet.paper_title, cheatsheet.paper_link):
        assert of_layer("FusedGCNConv") == of_layer("GCNConv")


def test_of_several_self_loops_the_last_one_has_the_gradient():
    edge_index, edge_weight = torch.tensor([[0, 1, 1, 1, 1], [1, 0, 1, 1, 1]]), torch.tensor([1.0, 1, 2, 3, 4], dtype=torch.double)
    found = []
    for layer in pair(3, 2):
        weight = edge_weight.clone().requires_grad_()
        out = layer(torch.ones(2, 3, dtype=torch.double), edge_index, weight)
        out.sum().backward()
        found.append((out, weight.grad))
    (ours, gradient), (theirs, expected) = found
    torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=0)
    torch.testing.assert_close(gradient[[0, 1, 4]], expected[[0, 1, 4]], rtol=1e-12, atol=0)
    assert gradient[2:4].eq(0).all() and expected[2:4].eq(expected[4]).all()


@pytest.mark.parametrize("add_self_loops", [True, False])
def test_a_nan_without_edges_stays_where_it_is(add_self_loops):
    x = torch.randn(5, 3, dtype=torch.double)
    x[4] = torch.nan
    fused, pyg = pair(3, 2, add_self_loops=add_self_loops)
    for layer in (fused, pyg):
        out = layer(x, torch.tensor([[0, 1, 2], [1, 2, 3]]))
        assert out[:4].isfinite().all() and out[4].isnan().all() == add_self_loops
        out[:4].sum().backward()
        assert layer.lin.weight.grad.isnan().all()


def test_the_default_layer_in_float32():
    edge_index = random_graph(3000, 12000)
    fused, pyg = pair(32, 64)
    assert_same(fused.float(), pyg.float(), torch.randn(3000, 32), edge_index, torch.rand(edge_index.shape[1]), tolerance=3e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_improved(weighted):
    """The adjacency is A + 2I, as PyG documents it. PyG itself ignores `improved` without edge weights, but not with weights of 1."""
    x, edge_index = torch.randn(7, 4).double(), torch.tensor([[0, 1, 1, 2, 4, 5], [1, 0, 2, 1, 4, 6]])
    fused, pyg = pair(4, 3, improved=True)
    ones = torch.ones(6).double()
    adjacency = torch.zeros(7, 7).double().index_put((edge_index[1], edge_index[0]), ones, accumulate=True)
    adjacency += 2 * torch.eye(7) * (adjacency.diagonal() == 0)
    scale = adjacency.sum(1) ** -0.5
    dense = (scale[:, None] * adjacency * scale) @ x @ fused.lin.weight.T + fused.bias
    out = fused(x, edge_index, ones if weighted else None)
    assert torch.allclose(out, dense, rtol=1e-12)
    assert torch.allclose(out, pyg(x, edge_index, ones), rtol=1e-12)
    assert torch.allclose(fused(x.expand(2, 7, 4), edge_index)[1], dense, rtol=1e-12)  # PyG's path
    assert not torch.allclose(out, pair(4, 3)[0](x, edge_index))


def test_training_two_layers_beside_pyg():
    torch.manual_seed(0)
    edge_index, x, y = random_graph(80, 300), torch.randn(80, 6).double(), torch.randn(80, 2).double()
    weight = torch.rand(edge_index.shape[1]).double().requires_grad_()
    losses, ends = [], []
    first, second = pair(6, 16), pair(16, 2)
    for layers in zip(first, second, strict=True):
        edge_weight = weight.detach().clone().requires_grad_()
        model = torch.nn.ModuleList(layers)
        optimizer = torch.optim.Adam([*model.parameters(), edge_weight], lr=0.01)
        losses.append([])
        for _ in range(100):
            optimizer.zero_grad()
            h = model[0](x, edge_index, edge_weight.abs()).relu()
            loss = (model[1](h, edge_index, edge_weight.abs()) - y).square().mean()
            loss.backward()
            optimizer.step()
            losses[-1].append(loss.item())
        ends.append(edge_weight.detach())
    assert losses[0][-1] < 0.9 * losses[0][0]
    assert torch.allclose(torch.tensor(losses[0]), torch.tensor(losses[1]), rtol=1e-9)
    assert torch.allclose(ends[0], ends[1], rtol=1e-7)


def test_second_derivatives():
    edge_index = random_graph(9, 20)
    weight = torch.rand(edge_index.shape[1]).double()
    found = []
    for layer in pair(3, 2):
        x = torch.linspace(-1, 1, 27).double().reshape(9, 3).requires_grad_()
        edge_weight = weight.clone().requires_grad_()
        (gradient,) = torch.autograd.grad(layer(x, edge_index, edge_weight).square().sum(), x, create_graph=True)
        found.append(torch.autograd.grad(gradient.square().sum(), [x, edge_weight, layer.lin.weight]))
    assert all(torch.allclose(left, right, rtol=1e-10) for left, right in zip(*found, strict=True))


def tied(layers, x, edge_index, edge_weight):
    first = layers[0](x, edge_index).tanh()
    return layers[0](first, edge_index), [x, *layers[0].parameters()]


def shared_edge_weight(layers, x, edge_index, edge_weight):
    first = layers[0](x, edge_index, edge_weight).tanh()
    return layers[1](first, edge_index, edge_weight), [x, edge_weight, layers[0].lin.weight, layers[1].lin.weight]


def edge_weight_of_features(layers, x, edge_index, edge_weight):
    weight = (x[edge_index[0]] * x[edge_index[1]]).sum(dim=1).sigmoid()
    return layers[0](x, edge_index, weight), [x, layers[0].lin.weight]


def features_that_are_the_weight(layers, x, edge_index, edge_weight):
    return layers[0](layers[0].lin.weight, edge_index), [layers[0].lin.weight, layers[0].bias]


@pytest.mark.parametrize("network", [tied, shared_edge_weight, edge_weight_of_features, features_that_are_the_weight])
def test_gradients_to_differentiate_again_of_arguments_that_depend_on_each_other(network):
    """First derivatives with `create_graph` equal those without, and second derivatives equal PyG's."""
    edge_index, pairs = random_graph(6, 14), [pair(6, 6) for _ in range(2)]
    x, edge_weight = torch.randn(6, 6, dtype=torch.double), torch.rand(edge_index.shape[1], dtype=torch.double) + 0.1
    found = []
    for layers in zip(*pairs, strict=True):
        out, leaves = network(layers, x.clone().requires_grad_(), edge_index, edge_weight.clone().requires_grad_())
        loss = out.square().sum()
        plain = torch.autograd.grad(loss, leaves, retain_graph=True)
        first = torch.autograd.grad(loss, leaves, create_graph=True)
        found.append([*plain, *first, *torch.autograd.grad(sum(gradient.square().sum() for gradient in first), leaves)])
    for actual, expected in zip(*found, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)


def test_normalised_edges_in_advance():
    """Calling gcn_norm once and then layers without normalisation is the usual way to save the normalisation."""
    _, pyg = pair(16, 32)
    x = torch.randn(4, 16).double()
    edge_index, weight = gcn_norm(STAR, None, 4, dtype=torch.double)
    plain = FusedGCNConv(16, 32, normalize=False).double()
    plain.load_state_dict(pyg.state_dict())
    assert torch.allclose(plain(x, edge_index, weight), pyg(x, STAR), rtol=1e-12)
