"""The C++ layer network agrees with its steps in plain PyTorch in float64, on molecules and on other graphs."""

from collections.abc import Iterable
from functools import cache

import pytest
import torch
from compiler import needs_extension
from hypothesis import given, settings
from hypothesis import strategies as st
from layer_network_cases import network_options
from pairs import parametrize_pairs
from passes_cpu_cases import CONVS, NETWORKS, SIZES, call_of, changed, graph, network, results, rings, weights, worst

from molgcn.errors import UserError
from molgcn.ops.graph import Graph
from molgcn.ops.layer_network.call import LayerNetworkCall, Options
from molgcn.ops.layer_network.steps import ACTIVATIONS

pytestmark = needs_extension

WIDTHS = (1, 7, 10, 64, 70, 300, 1030)


@cache
def plainly(of_network, training: bool = True, scale: float = 1.0) -> tuple[LayerNetworkCall, dict[str, torch.Tensor]]:
    """Return a call and its results in plain PyTorch, which are the same for all instruction sets."""
    call = call_of(of_network, training=training)
    call = call._replace(graph=call.graph._replace(x=call.graph.x * scale))
    return call, results(call, plain=True)


@parametrize_pairs("conv, options, training, coded, widths", CONVS, NETWORKS, [True, False], [True, False], [(6, 10), (10, 16)], slow=True)
def test_float64(conv, options, training, coded, widths):
    """Rows of 16 columns are whole vectors, others are padded to some."""
    in_channels, hidden = widths
    call = call_of(network(conv, options, in_channels=in_channels, hidden=hidden), training=training, coded=coded)
    assert worst(results(call), results(call, plain=True)) < 1e-12


@pytest.mark.parametrize("conv", ["gat", "gatv2 mean"])
def test_a_large_batch(conv):
    """The steps compute values of attention again in the backward pass of a large batch."""
    of_network, sizes = network(conv, "batch", hidden=4, layers=2), SIZES * 50
    call = call_of(of_network, graph(rings(sizes), sizes, of_network))
    assert worst(results(call), results(call, plain=True)) < 1e-11


@pytest.mark.parametrize("options", ["plain", "layer", "blocks"])
@pytest.mark.parametrize("conv", CONVS)
def test_float32(conv, options):
    call = call_of(network(conv, options), training=options != "blocks")  # batch statistics magnify what float32 leaves
    actual, expected = results(changed(call, torch.Tensor.float)), results(call, plain=True)
    assert worst({"pooled": actual["pooled"]}, {"pooled": expected["pooled"]}) < 1e-5
    assert worst(actual, expected) < 5e-5


@pytest.mark.parametrize(
    ("width", "conv"),
    [
        pytest.param(width, conv, marks=pytest.mark.slow if width > 1000 and conv == "sage max" else ())
        for width in WIDTHS
        for conv in ("gine", "sage max")
    ],
)
def test_widths(width, conv, instruction_set):
    of_network = network(conv, in_channels=width, hidden=width, layers=1 if width > 300 else 2)
    call, expected = plainly(of_network)
    assert worst(results(call), expected) < 1e-12
    call, expected = plainly(of_network, training=False)
    assert worst(results(changed(call, torch.Tensor.float)), expected) < 5e-5


@pytest.mark.parametrize("options", ["plain", "layer"])
@pytest.mark.parametrize("conv", ["gin norm", "gine", "sage max", "dmpnn", "dmpnn without bonds"])
def test_atoms_of_few_kinds(conv, options, instruction_set):
    """Products of wide layers take equal rows once; among them are rows of zeros, and rows that dropout makes different.

    The numbers have few bits. Otherwise PyTorch may round products of equal rows differently, of which a maximum then takes one.
    """
    own = network(conv, "plain" if conv.startswith("dmpnn") else options, in_channels=133, hidden=140)
    call = call_of(own._replace(dropout=0.2) if conv == "dmpnn" else own)
    kinds = torch.arange(call.graph.num_nodes) % 3
    rows = call.graph.x[:3].clone()
    rows[0] = 0
    call = changed(call._replace(graph=call.graph._replace(x=rows[kinds])), lambda tensor: (tensor * 64).round() / 64)
    expected = results(call, plain=True)
    assert worst(results(call), expected) < 1e-12
    assert worst(results(changed(call, torch.Tensor.float)), expected) < 5e-5


@pytest.mark.parametrize("activation", ACTIVATIONS[2:])
def test_activations(activation, instruction_set):
    """Functions of one vector agree with PyTorch's to a few last digits, also far from 0, in both directions."""
    own = {"mlp_norm": True, "mlp_activation": activation, "activation": activation, "norm": "layer", "dropout": 0.3}
    of_network = network_options("gin", 6, 10, 2, feed_forward=True, feed_forward_norm=None, **own)
    for training in (True, False):
        call, expected = plainly(of_network, training)
        assert worst(results(call), expected) < 1e-12
    for scale in (1.0, 40.0, 300.0):
        call, expected = plainly(network_options("sage", 6, 10, 1, activation=activation), False, scale)
        assert worst(results(call), expected) < 1e-12
        bound = max(5e-6, 1e-7 * scale)  # the products before them round in float32, to numbers of this size
        assert worst(results(changed(call, torch.Tensor.float)), expected) < bound


def test_what_is_not_a_number_stays_so(instruction_set):
    """Every activation and dropout pass NaN on, as PyTorch does."""
    for activation in ACTIVATIONS[1:]:
        call = call_of(network_options("gin", 6, 10, 1, activation=activation, mlp_activation=activation, dropout=0.9))
        call = call._replace(graph=call.graph._replace(x=call.graph.x * torch.nan))
        pooled = results(call)["pooled"][call.graph.ptr.diff() > 0]
        assert pooled.isnan().all()


MOLECULE = st.tuples(st.integers(0, 9), st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=12))


@settings(max_examples=60)
@given(st.lists(MOLECULE, max_size=6), st.sampled_from(sorted(CONVS)), st.sampled_from(["layer", "blocks"]), st.booleans())
def test_any_graph(molecules, conv, options, coded):
    """Graphs have isolated atoms, loops and duplicates; molecules may have no atoms and batches no molecules."""
    of_network = network(conv, options, layers=2)
    call = call_of(
        of_network, graph([edges for _, edges in molecules], [size for size, _ in molecules], of_network, coded=coded), training=False
    )
    actual = results(call)
    if call.graph.num_nodes > 0:
        assert worst(actual, results(call, plain=True)) < 1e-11
    else:
        assert all(not one.any() for one in actual.values())


@pytest.mark.parametrize("conv", ["gin", "gat", "gated_gcn", "dmpnn"])
@pytest.mark.parametrize("sizes", [[0], [0, 0]])
def test_molecules_without_atoms_have_no_gradients(conv, sizes):
    """What memory held before does not count."""
    of_network = network(conv, "layer", layers=2)
    call = call_of(of_network, graph([[] for _ in sizes], sizes, of_network), training=False)
    for _ in range(3):
        junk = [torch.full((size,), 3.0, dtype=torch.float64) for size in (100, 1000, 3000, 5000, 10000)]
        del junk
        assert all(not one.any() for one in results(call).values())


def results_by_threads(call: LayerNetworkCall, numbers: Iterable[int]) -> list[dict[str, torch.Tensor]]:
    """Return the results of a call with each of some numbers of threads."""
    before, found = torch.get_num_threads(), []
    try:
        for number in numbers:
            torch.set_num_threads(number)
            found.append(results(call))
    finally:
        torch.set_num_threads(before)
    return found


@parametrize_pairs("conv, coded, width", ["gine", "gin norm", "sage max"], [True, False], [10, 16])
def test_the_number_of_threads_does_not_count(conv, coded, width):
    """Results have the same bits with any number of threads."""
    of_network = network(conv, "blocks", hidden=width)
    call = changed(call_of(of_network, graph(rings(SIZES * 8), SIZES * 8, of_network, coded=coded)), torch.Tensor.float)
    one, *others = results_by_threads(call, (1, 2, 3))
    for name, expected in one.items():
        assert all(torch.equal(other[name], expected) for other in others), name


def test_threads_prepare_a_weight_that_several_steps_read_once():
    """Rounds of bond messages share their weights. Preparing one at the same time ended the process in a corrupted heap."""
    of_network = network("dmpnn", "plain", hidden=64, layers=6)
    call = call_of(of_network, graph(rings(SIZES * 8), SIZES * 8, of_network))
    one, *others = results_by_threads(call, (1, *[2] * 60))
    assert all(torch.equal(other[name], expected) for other in others for name, expected in one.items())


@parametrize_pairs("conv, coded, width", CONVS, [True, False], [10, 16])
def test_padding_does_not_count(conv, coded, width):
    call = call_of(network(conv, "blocks", in_channels=width, hidden=width), coded=coded)
    x, bonds, ptr, rowptr, col, code, *_ = call.graph
    padded = Graph(
        torch.cat([x, x.new_full((3, x.shape[1]), torch.nan)]),
        bonds if coded or bonds is None else torch.cat([bonds, bonds.new_full((5, bonds.shape[1]), torch.nan)]),
        torch.cat([ptr, ptr[-1:].expand(2)]),
        torch.cat([rowptr, rowptr[-1] + torch.tensor([2, 5, 5], dtype=torch.int32)]),
        torch.cat([col, torch.full((5,), x.shape[0], dtype=torch.int32)]),
        None if code is None else torch.cat([code, torch.full((5,), -1, dtype=torch.int32)]),
    )
    expected = results(call, plain=True)
    actual = results(call._replace(graph=padded))
    assert not actual["x"][x.shape[0] :].any()
    assert not actual["pooled"][call.graph.num_graphs :].any()
    actual |= {"x": actual["x"][: x.shape[0]], "pooled": actual["pooled"][: call.graph.num_graphs]}
    if code is None and bonds is not None:
        assert not actual["bonds"][bonds.shape[0] :].any()
        actual["bonds"] = actual["bonds"][: bonds.shape[0]]
    assert worst(actual, expected) < 1e-12


@pytest.mark.parametrize("coded", [True, False])
@pytest.mark.parametrize("conv", ["gcn", "gine", "gcn_edge of one width", "sage"])
def test_gradients_that_are_not_wanted(conv, coded):
    call = call_of(network(conv), coded=coded)
    everything = results(call)
    for wanted in ("x", "bonds", "none"):
        actual = results(call, grad_x=wanted == "x", grad_bonds=wanted == "bonds" and call.graph.bonds is not None)
        expected = {name: one if name not in ("x", "bonds") or name == wanted else one.new_empty(0, 0) for name, one in everything.items()}
        assert all(torch.equal(actual[name], one) for name, one in expected.items())


@pytest.mark.parametrize("coded", [True, False])
def test_networks_that_see_no_bonds_take_batches_that_have_them(coded):
    call = call_of(network("gin norm"))
    with_bonds = graph(rings(), SIZES, network("gine"), coded=coded)
    actual = results(
        call._replace(graph=call.graph._replace(bonds=None if coded else with_bonds.bonds, code=with_bonds.code)), grad_bonds=False
    )
    assert all(torch.equal(actual[name], one) for name, one in results(call).items())


def test_saved_rows_lie_anywhere():
    """Hooks on saved tensors may give memory to backward that is aligned otherwise."""
    call = call_of(network(hidden=16))
    of_backward = call._replace(statistics=[]).arguments
    with torch.no_grad():
        saved = torch.ops.molgcn.layer_network(*call.arguments)[2]
        elsewhere = saved.new_empty(len(saved) + 1)[1:].copy_(saved)
        expected, actual = (
            torch.ops.molgcn.layer_network_backward(weights(call), one, True, True, *of_backward) for one in (saved, elsewhere)
        )
    assert all(torch.equal(one, other) for one, other in zip(actual[2], expected[2], strict=True))


def test_nothing_is_kept_without_gradients():
    call = call_of(network())
    arguments = call._replace(options=Options(True, save_for_backward=False)).arguments
    pooled, statistics, saved = torch.ops.molgcn.layer_network(*arguments)
    torch.library.opcheck(torch.ops.molgcn.layer_network.default, arguments, test_utils="test_faketensor")
    expected = results(call)
    assert saved.numel() == 0
    assert torch.equal(pooled, expected["pooled"])
    assert torch.equal(statistics, expected["statistics"])


@pytest.mark.parametrize(
    ("conv", "options"), [("gine", "layer"), *(pytest.param(conv, "blocks", marks=pytest.mark.slow) for conv in ("gin norm", "sage max"))]
)
def test_opcheck(conv, options):
    call = changed(call_of(network(conv, options)), torch.Tensor.requires_grad_)
    torch.library.opcheck(torch.ops.molgcn.layer_network.default, call.arguments)


def test_numbers_far_from_one():
    """Activations of 1e6 and gradients of 1e-12 are as accurate as PyTorch's in float32."""
    call = call_of(network("gine", "plain"), training=False)
    call = call._replace(graph=call.graph._replace(x=call.graph.x * 1e6))
    assert worst(results(changed(call, torch.Tensor.float)), results(call, plain=True)) < 5e-5


@pytest.mark.parametrize("conv", ["gat", "gat mean", "gatv2", "gatv2 mean"])
def test_scores_of_attention_far_from_zero(conv):
    """Scores of 1e4 give weights and gradients that are finite and right."""
    call = call_of(network(conv, "plain"))
    for name, parameter in zip(call.program.parameters, call.parameters, strict=True):
        if "att" in name:
            parameter.mul_(1e4)
    assert worst(results(call), results(call, plain=True)) < 1e-8


@pytest.mark.parametrize("channels", [3, 4, 8, 9, 16, 22, 31, 33, 48, 50])
@pytest.mark.parametrize("conv", ["gat", "gatv2"])
def test_columns_of_heads(conv, channels, instruction_set):
    """A head's columns take a part of a vector or several vectors, the last of which may overlap the one before it."""
    call, expected = plainly(network(conv, in_channels=5, hidden=2 * channels, layers=1))
    assert worst(results(call), expected) < 1e-12
    assert worst(results(changed(call, torch.Tensor.float)), expected) < 5e-5


def test_moments_without_cancellation():
    """With a mean of 1e4 times the deviation, batch norm loses no more digits than its float32 inputs have lost."""
    of_network = network_options("gcn", 6, 10, 1, norm="batch")
    call = call_of(of_network)
    call.parameters[1].add_(1e4)
    actual, expected = (results(each)["pooled"].double() for each in (changed(call, torch.Tensor.float), call))
    assert (actual - expected).norm() / expected.norm() < 1e-2


BROKEN = {
    "an atom of another molecule": ("col", lambda col: col.flip(0)),
    "ptr must run": ("ptr", lambda ptr: ptr.flip(0)),
    "rowptr must run": ("rowptr", lambda rowptr: torch.cat([rowptr[:1] + 1, rowptr[1:]])),
    "code has a number outside": ("code", lambda code: code + 3),
}


@pytest.mark.parametrize("said", BROKEN)
def test_graphs_that_are_none(said):
    call = call_of(network())
    name, broken = BROKEN[said]
    call = call._replace(graph=call.graph._replace(**{name: broken(getattr(call.graph, name))}))
    with pytest.raises(ValueError, match=said):
        torch.ops.molgcn.layer_network(*call.arguments)


def test_dtypes():
    with pytest.raises(UserError, match=r"float32 or float64, not torch\.float16"):
        torch.ops.molgcn.layer_network(*changed(call_of(network()), torch.Tensor.half).arguments)
