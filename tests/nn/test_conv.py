"""FusedGCNConv in the place of PyG's GCNConv: same numbers and gradients side by side, same names, and PyG's path for the rest."""

import copy
import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.autograd import forward_ad
from torch_geometric.nn import GCNConv, Linear
from torch_geometric.nn.conv.gcn_conv import gcn_norm
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csr_tensor

from molgcn.nn import GCN, FusedGCNConv, conv
from molgcn.ops import HAS_CPU_EXTENSION

if not HAS_CPU_EXTENSION:
    pytest.skip("installed without the C++ extension", allow_module_level=True)

STAR = torch.tensor([[0, 0, 0, 1, 2, 3], [1, 2, 3, 0, 0, 0]])


def pair(*arguments, **options):
    """Both layers with the same random weights and biases, in float64."""
    fused, pyg = FusedGCNConv(*arguments, **options).double(), GCNConv(*arguments, **options).double()
    if fused.bias is not None:
        torch.nn.init.normal_(fused.bias)
    pyg.load_state_dict(fused.state_dict())
    return fused, pyg


def results(layer, x, edge_index, edge_weight=None, grad=None):
    """Output and every gradient."""
    layer.zero_grad()
    x = x.detach().clone().requires_grad_()
    edge_weight = None if edge_weight is None else edge_weight.detach().clone().requires_grad_()
    out = layer(x, edge_index, edge_weight)
    out.backward(torch.ones_like(out) if grad is None else grad)
    gradients = {name: parameter.grad.clone() for name, parameter in layer.named_parameters()}
    weight = {} if edge_weight is None else {"edge_weight": edge_weight.grad}
    return {"out": out.detach(), "x": x.grad, **gradients, **weight}


def assert_same(fused, pyg, x, edge_index, edge_weight=None, tolerance=1e-12):
    grad = torch.randn(x.shape[0], fused.out_channels, dtype=x.dtype)
    assert fused.is_fused(x, edge_index, edge_weight)
    actual, expected = results(fused, x, edge_index, edge_weight, grad), results(pyg, x, edge_index, edge_weight, grad)
    assert list(actual) == list(expected)
    floor = max(1e-3 * max(value.norm().item() for value in expected.values()), 1e-9)
    for name, value in expected.items():
        assert (actual[name] - value).norm() <= tolerance * max(value.norm().item(), floor), name


def random_graph(num_nodes, num_edges, seed=0, loops=True):
    """Unsorted edges with duplicates; at most one from a node to itself."""
    generator = torch.Generator().manual_seed(seed)
    edge_index = torch.randint(0, num_nodes, (2, num_edges), generator=generator)
    own = (edge_index[0] == edge_index[1]).nonzero()[:, 0]
    first = torch.unique(edge_index[0, own], return_inverse=True)[1]
    keep = torch.ones(num_edges, dtype=torch.bool)
    keep[own] = torch.tensor([loops and place not in first[:i].tolist() for i, place in enumerate(first.tolist())], dtype=torch.bool)
    return edge_index[:, keep]


# --- side by side ---
@settings(max_examples=80, deadline=None)
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
    assert_same(fused, pyg, torch.randn(num_nodes, channels[0], dtype=torch.double), edge_index, edge_weight)


def test_the_default_layer_in_float32():
    edge_index = random_graph(3000, 12000)
    fused, pyg = pair(32, 64)
    assert_same(fused.float(), pyg.float(), torch.randn(3000, 32), edge_index, torch.rand(edge_index.shape[1]), tolerance=3e-6)


@pytest.mark.parametrize("weighted", [False, True])
def test_improved(weighted):
    """A + 2I, as PyG documents it. Without edge weights PyG itself leaves `improved` out; with weights of one it does not."""
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


# --- in PyG's place ---
def test_names_initialisation_and_repr():
    torch.manual_seed(3)
    fused = FusedGCNConv(16, 32)
    torch.manual_seed(3)
    pyg = GCNConv(16, 32)
    assert isinstance(fused, GCNConv)
    assert str(fused) == str(pyg) == "GCNConv(16, 32)"
    assert list(fused.state_dict()) == list(pyg.state_dict())
    assert all(torch.equal(left, right) for left, right in zip(fused.state_dict().values(), pyg.state_dict().values(), strict=True))
    fused.load_state_dict(pyg.state_dict())
    with pytest.raises(ValueError, match="adding self-loops"):
        FusedGCNConv(1, 1, add_self_loops=True, normalize=False)


def test_lazy_width():
    layer = FusedGCNConv(-1, 8)
    x = torch.randn(4, 16)
    assert layer(x, STAR).shape == (4, 8)
    assert layer.lin.weight.shape == (8, 16)
    assert layer.is_fused(x, STAR)


def test_cached_keeps_the_first_graph():
    fused, pyg = pair(16, 32, cached=True)
    x, other = torch.randn(4, 16).double(), torch.tensor([[0, 1], [1, 2]])
    weight = torch.rand(6).double()
    first = fused(x, STAR, weight)
    assert fused._cached_edge_index is not None
    assert torch.allclose(first, pyg(x, STAR, weight), rtol=1e-12)
    assert torch.equal(fused(x, other), first)
    assert_same(fused, pyg, x, other)
    sparse = to_torch_csr_tensor(STAR, torch.ones(6).double(), size=(4, 4))
    assert torch.allclose(fused(x, sparse), first)  # on PyG's path, from the same cache
    fused.reset_parameters()
    assert fused._cached_edge_index is None
    fused(x, sparse)
    assert fused(x, STAR).shape == (4, 32)  # the cache is a sparse matrix now


@pytest.mark.parametrize("convert", [to_torch_coo_tensor, to_torch_csr_tensor])
def test_sparse_matrices(convert):
    fused, pyg = pair(16, 32)
    x, value = torch.randn(4, 16).double(), torch.rand(6).double()
    for weight in (None, value):
        adjacency = convert(STAR.flip(0), weight if weight is not None else torch.ones(6).double(), size=(4, 4))
        assert not fused.is_fused(x, adjacency)
        assert torch.equal(fused(x, adjacency), pyg(x, adjacency))
        assert torch.allclose(fused(x, adjacency), fused(x, STAR, weight), rtol=1e-12)


def test_torch_sparse_if_installed():
    torch_sparse = pytest.importorskip("torch_sparse")
    fused, _ = pair(16, 32)
    x, value = torch.randn(4, 16).double(), torch.rand(6).double()
    adjacency = torch_sparse.SparseTensor.from_edge_index(STAR, value, (4, 4))
    assert torch.allclose(fused(x, adjacency.t()), fused(x, STAR, value), rtol=1e-12)


def test_sparse_features():
    x = torch.sparse_coo_tensor(torch.tensor([[0, 0], [0, 1]]), torch.tensor([1.0, 1.0]), (4, 16))
    layer = FusedGCNConv(16, 32)
    assert torch.allclose(layer(x, STAR), layer(x.to_dense(), STAR), atol=1e-6)


def test_static_graphs_and_decomposed_layers():
    fused, pyg = pair(16, 32)
    x = torch.randn(3, 4, 16).double()
    assert torch.equal(fused(x, STAR), pyg(x, STAR))
    assert torch.allclose(fused(x, STAR)[1], fused(x[1], STAR), rtol=1e-12)
    other = copy.deepcopy(fused)
    other.decomposed_layers = 2
    assert not other.is_fused(x[0], STAR)
    assert torch.allclose(other(x[0], STAR), fused(x[0], STAR), rtol=1e-12)


def test_flow_may_change():
    layer = FusedGCNConv(16, 32)
    x, edge_index = torch.randn(4, 16), torch.tensor([[0, 0, 0], [1, 2, 3]])
    out = layer(x, edge_index)
    layer.flow = "target_to_source"
    assert torch.allclose(layer(x, edge_index.flip(0)), out, atol=1e-6)
    assert not torch.allclose(layer(x, edge_index), out, atol=1e-6)


def test_bipartite_and_missing_nodes_are_refused():
    layer = FusedGCNConv(16, 32)
    with pytest.raises(ValueError, match="bipartite"):
        layer((torch.randn(4, 16), torch.randn(4, 16)), STAR)
    with pytest.raises(IndexError, match="outside"):
        layer(torch.randn(3, 16), STAR)


def test_copies_and_pickles():
    layer = FusedGCNConv(16, 32)
    x = torch.randn(4, 16)
    out = layer(x, STAR)
    buffer = io.BytesIO()
    torch.save(layer, buffer)
    buffer.seek(0)
    for other in (copy.deepcopy(layer), torch.load(buffer, weights_only=False)):
        assert type(other) is FusedGCNConv
        assert torch.equal(other(x, STAR), out)


def test_torch_script_takes_pygs_layer():
    layer = FusedGCNConv(16, 32)
    x = torch.randn(4, 16)
    assert torch.allclose(torch.jit.script(layer)(x, STAR), layer(x, STAR), atol=1e-6)
    assert type(layer) is FusedGCNConv


def test_torch_compile():
    fused, _ = pair(6, 6)
    edge_index, x = random_graph(50, 200), torch.randn(50, 6).double()
    weight = torch.rand(edge_index.shape[1]).double()
    expected = results(fused, x, edge_index, weight)
    compiled = results(torch.compile(fused, backend="aot_eager"), x, edge_index, weight)
    assert [name.removeprefix("_orig_mod.") for name in compiled] == list(expected)
    assert all(torch.allclose(left, right, rtol=1e-12) for left, right in zip(compiled.values(), expected.values(), strict=True))


def test_torch_func_and_forward_mode():
    fused, pyg = pair(3, 2)
    x, edge_index = torch.randn(9, 3).double(), random_graph(9, 20)

    def jacobians(layer):
        return [transform(lambda v: layer(v, edge_index))(x) for transform in (torch.func.jacrev, torch.func.jacfwd)]

    for left, right in zip(jacobians(fused), jacobians(pyg), strict=True):
        assert torch.allclose(left, right, rtol=1e-12)
    with forward_ad.dual_level():
        tangents = [forward_ad.unpack_dual(layer(forward_ad.make_dual(x, x.cos()), edge_index)).tangent for layer in (fused, pyg)]
    assert torch.allclose(*tangents, rtol=1e-12)
    rows = torch.func.vmap(lambda v: fused(v, edge_index))(x.expand(4, 9, 3))
    assert torch.allclose(rows[1], pyg(x, edge_index), rtol=1e-12)
    assert fused.is_fused(x, edge_index)


# --- what wants to look inside takes PyG's path ---
class Doubled(FusedGCNConv):
    def message(self, x_j, edge_weight):
        return 2 * super().message(x_j, edge_weight)


def hooked(layer):
    layer.register_message_forward_hook(lambda module, inputs, out: 2 * out)
    layer.fuse = False
    return layer


def hooked_linear(layer):
    layer.lin.register_forward_hook(lambda module, inputs, out: 2 * out)
    return layer


class Low(Linear):
    def forward(self, x):
        return 2 * super().forward(x)


def replaced_linear(layer):
    linear = Low(layer.in_channels, layer.out_channels, bias=False)
    linear.weight = layer.lin.weight
    layer.lin = linear
    return layer


@pytest.mark.parametrize("change", [hooked, hooked_linear, replaced_linear])
def test_what_others_change_counts(change):
    plain, x = FusedGCNConv(16, 32, bias=False), torch.randn(4, 16)
    out = plain(x, STAR)
    changed = change(plain)
    assert not changed.is_fused(x, STAR)
    assert torch.allclose(changed(x, STAR), 2 * out, atol=1e-6)


def test_overridden_messages_count():
    plain, doubled, x = FusedGCNConv(16, 32, bias=False), Doubled(16, 32, bias=False), torch.randn(4, 16)
    doubled.load_state_dict(plain.state_dict())
    assert torch.allclose(doubled(x, STAR), 2 * plain(x, STAR), atol=1e-6)


@pytest.mark.parametrize("aggr", ["mean", "max"])
def test_other_aggregations(aggr):
    fused, pyg = pair(16, 32, aggr=aggr)
    x = torch.randn(4, 16).double()
    assert torch.equal(fused(x, STAR), pyg(x, STAR))


def test_other_dtypes_and_autocast():
    fused, pyg = pair(16, 32)
    fused, pyg, x = fused.float(), pyg.float(), torch.randn(4, 16)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(fused(x, STAR), pyg(x, STAR))
    assert torch.equal(fused.bfloat16()(x.bfloat16(), STAR), pyg.bfloat16()(x.bfloat16(), STAR))


@pytest.mark.parametrize("kind", ["ours", "a subclass"])
def test_explanations_see_the_edges(kind):
    from torch_geometric.explain import Explainer, GNNExplainer

    GCNConv(5, 2)  # from then on PyG has a specialised form of its class, which ours must not take over

    class Mine(FusedGCNConv):
        pass

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = layer(5, 2)

        def forward(self, x, edge_index):
            return self.conv(x, edge_index)

    layer = {"ours": FusedGCNConv, "a subclass": Mine}[kind]
    explainer = Explainer(
        Net(),
        GNNExplainer(epochs=5),
        explanation_type="model",
        edge_mask_type="object",
        model_config={"mode": "regression", "task_level": "node", "return_type": "raw"},
    )
    explanation = explainer(torch.randn(4, 5), STAR)
    assert explanation.edge_mask.abs().sum() > 0


def test_where_there_is_no_operator(monkeypatch):
    fused, pyg = pair(16, 32)
    x = torch.randn(4, 16).double()
    monkeypatch.setattr(conv, "available", lambda device: False)
    assert not fused.is_fused(x, STAR)
    assert torch.equal(fused(x, STAR), pyg(x, STAR))


def test_normalised_edges_in_advance():
    """The usual way to save the normalisation: gcn_norm once, then layers without."""
    _, pyg = pair(16, 32)
    x = torch.randn(4, 16).double()
    edge_index, weight = gcn_norm(STAR, None, 4, dtype=torch.double)
    plain = FusedGCNConv(16, 32, normalize=False).double()
    plain.load_state_dict(pyg.state_dict())
    assert torch.allclose(plain(x, edge_index, weight), pyg(x, STAR), rtol=1e-12)


def test_importing_the_model_does_not_import_pyg():
    loaded = "'torch_geometric' in sys.modules"
    code = f"import sys, molgcn.nn; assert not {loaded}; molgcn.nn.FusedGCNConv; assert {loaded}"
    subprocess.run([sys.executable, "-c", code], check=True)
    with pytest.raises(ImportError):
        from molgcn.nn import NoSuchLayer  # noqa: F401
    assert GCN is not None


@pytest.mark.skipif("PYG_SOURCE" not in os.environ, reason="PYG_SOURCE names no checkout of pytorch_geometric")
def test_pygs_own_tests(tmp_path):
    """PyG's tests of GCNConv with this layer in its place."""
    source = (Path(os.environ["PYG_SOURCE"]) / "test/nn/conv/test_gcn_conv.py").read_text()
    swapped = source.replace("from torch_geometric.nn import GCNConv", "from molgcn.nn import FusedGCNConv as GCNConv")
    assert swapped != source
    (tmp_path / "test_swapped.py").write_text(swapped)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_swapped.py"],
        cwd=tmp_path,
        env={**os.environ, "FULL_TEST": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
