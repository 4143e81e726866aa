"""PyG's path takes what the fused layers leave to it, gives PyG's results, and `why_not` says why."""

import pytest
import torch
from compiler import needs_extension
from layer_cases import EACH_ONCE, WIDTH, inputs_for, name_of, pair, random_graph
from torch_geometric import EdgeIndex
from torch_geometric.utils import to_torch_csr_tensor

pytestmark = needs_extension
each_once = pytest.mark.parametrize("case", EACH_ONCE, ids=name_of)


def check(fused, pyg, reason, *arguments, **options):
    assert reason in fused.why_not(*arguments, **options)
    actual, expected = fused(*arguments, **options), pyg(*arguments, **options)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", [case for case in EACH_ONCE if not case[3]], ids=name_of)
def test_sparse_matrices(case):
    fused, pyg = pair(case)
    edge_index = torch.unique(random_graph(), dim=1)
    adjacency = to_torch_csr_tensor(edge_index.flip(0), torch.ones(edge_index.shape[1], dtype=torch.float64), size=(40, 40))
    check(fused, pyg, "sparse matrix", inputs_for(case, edge_index)[0], adjacency)


@each_once
def test_edge_indices_of_pygs_own_type(case):
    fused, pyg = pair(case)
    x, edge_index, *rest = inputs_for(case, random_graph())
    check(fused, pyg, "EdgeIndex", x, EdgeIndex(edge_index, sparse_size=(40, 40)), *rest)


@each_once
def test_hooks_and_subclasses(case):
    fused, pyg = pair(case)
    arguments = inputs_for(case, random_graph())
    for layer in (fused, pyg):
        layer.register_message_forward_hook(lambda module, inputs, out: 2 * out)
    check(fused, pyg, "hook", *arguments)

    class Mine(type(fused)):
        def message(self, **arguments):
            return super().message(**arguments)

    mine = Mine.__new__(Mine)
    vars(mine).update(vars(pair(case)[0]))
    assert "a subclass has a message() of its own" in mine.why_not(*arguments)


@each_once
def test_other_aggregations_and_dtypes(case):
    fused, pyg = pair(case)
    arguments = inputs_for(case, random_graph())
    for layer in (fused, pyg):
        layer.aggr = "median"
    assert "'median' has no kernel" in fused.why_not(*arguments)
    fused, _ = pair(case, torch.bfloat16)
    arguments = inputs_for(case, random_graph(), dtype=torch.bfloat16)
    assert "bfloat16 outside autocast" in fused.why_not(*arguments)


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv"])
def test_attention_weights_to_return(name):
    fused, pyg = pair((name, (WIDTH, 5), {"heads": 2}, False))
    x, edge_index = inputs_for(("", (), {}, False), random_graph())
    assert "attention weights" in fused.why_not(x, edge_index, return_attention_weights=True)
    (out, (edges, weights)), (expected, (_, theirs)) = (layer(x, edge_index, return_attention_weights=True) for layer in (fused, pyg))
    assert torch.equal(out, expected) and torch.equal(weights, theirs)
    assert torch.allclose(out, fused(x, edge_index), rtol=1e-12)
    assert edges.shape[1] == weights.shape[0]


@pytest.mark.parametrize("name", ["GATConv", "GATv2Conv"])
def test_fills_of_self_loops_that_have_no_kernel(name):
    case = (name, (WIDTH, 5), {"edge_dim": 4, "fill_value": "max"}, True)
    check(*pair(case), "fill_value is 'max'", *inputs_for(case, random_graph()))


@pytest.mark.parametrize("case", [case for case in EACH_ONCE if case[0] in ("GCNConv", "GATConv")], ids=name_of)
def test_linear_maps_that_others_have_changed(case):
    """The changes are a bias where PyG's layer has none, a hook and another class."""
    arguments = inputs_for(case, random_graph())
    for layer in (layers := pair(case)):
        layer.lin.bias = torch.nn.Parameter(torch.arange(layer.lin.weight.shape[0], dtype=torch.float64))
    check(*layers, "lin has a bias", *arguments)
    for layer in (layers := pair(case)):
        layer.lin.register_forward_hook(lambda module, inputs, out: 2 * out)
    check(*layers, "lin has hooks", *arguments)
    fused, _ = pair(case)
    fused.lin = torch.nn.utils.parametrizations.weight_norm(fused.lin)
    assert "lin is a Parametrized" in fused.why_not(*arguments)


def test_sources_and_targets_in_the_reverse_flow():
    for case in EACH_ONCE:
        if case[0] not in ("GCNConv", "GINEConv"):
            fused, _ = pair((*case[:2], {**case[2], "flow": "target_to_source"}, False))
            x = torch.randn(40, WIDTH, dtype=torch.float64)
            assert "target_to_source" in fused.why_not((x, x), random_graph())


@each_once
def test_torch_func(case):
    fused, pyg = pair(case)
    x, edge_index, *rest = inputs_for(case, random_graph(10, 20), 10)
    jacobians = [torch.func.jacrev(lambda v, layer=layer: layer(v, edge_index, *rest))(x.detach()) for layer in (fused, pyg)]
    assert torch.allclose(*jacobians, rtol=1e-10)


@pytest.mark.parametrize("case", [case for case in EACH_ONCE if case[0] in ("GCNConv", "GINConv", "SAGEConv")], ids=name_of)
def test_torch_script_takes_pygs_layer(case):
    """Only layers that PyG itself can script are tested."""
    fused, _ = pair(case)
    x, edge_index, *rest = inputs_for(case, random_graph())
    scripted = torch.jit.script(fused)
    assert torch.allclose(scripted(x, edge_index, *rest), fused(x, edge_index, *rest), rtol=1e-10)
