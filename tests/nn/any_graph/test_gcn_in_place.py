"""FusedGCNConv replaces PyG's GCNConv: it has the same names and options, and works with the same inputs and tools of PyTorch."""

import copy
import io

import pytest
import torch
from compiler import needs_extension
from gcn_cases import STAR, assert_same, pair, random_graph, results
from torch.autograd import forward_ad
from torch_geometric.nn import GCNConv
from torch_geometric.utils import to_torch_coo_tensor, to_torch_csr_tensor

from molgcn.nn import GCN, FusedGCNConv

pytestmark = needs_extension


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
    assert layer.why_not(x, STAR) is None


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
        assert fused.why_not(x, adjacency) is not None
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
    assert other.why_not(x[0], STAR) is not None
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
    decomposed = copy.deepcopy(layer)
    decomposed.decomposed_layers = 2
    for given in (layer, layer.jittable(), decomposed):
        assert torch.allclose(torch.jit.script(given)(x, STAR), layer(x, STAR), atol=1e-6)
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
    assert fused.why_not(x, edge_index) is None


def test_a_name_that_is_not_there():
    with pytest.raises(ImportError):
        from molgcn.nn import NoSuchLayer  # noqa: F401
    assert GCN is not None
