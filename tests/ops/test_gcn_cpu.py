"""The message network on the CPU agrees with its float64 oracle; tests/nn/test_fused.py compares the layers with PyG's."""

import itertools

import pytest
import torch
from compiler import needs_extension
from gcn_reference import gcn_reference
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from stack_cases import changed, converted, errors, gcn, random_batch, random_inputs, run, worst
from torch_geometric.data import Data

from molgcn.data import GraphBatch
from molgcn.ops.gcn_network import GcnCall

pytestmark = [needs_extension, pytest.mark.usefixtures("one_thread")]

SIZES = [5, 1, 7, 200, 3, 30, 30, 40, 1, 1]  # a tile of small ones, single atoms, a molecule larger than a tile
WIDTHS = [(11, 32), (3, 5), (7, 33), (20, 20), (40, 72)]
TOLERANCE = 1e-11


OPTIONS = [
    dict(zip(("norm", "residual", "add_self_loops", "last_activation", "pool", "training"), values, strict=True))
    for values in itertools.product(
        (None, "batch", "layer"), (False, True), (False, True), (False, True), ("mean", "sum", "max"), (False, True)
    )
]


@pytest.mark.parametrize(("in_channels", "hidden"), WIDTHS)
def test_every_option_in_float64(in_channels, hidden, instruction_set):
    batches = {kinds: random_batch(SIZES, in_channels, kinds=kinds) for kinds in (None, 2)}
    for number, options in enumerate(OPTIONS[WIDTHS.index((in_channels, hidden)) :: len(WIDTHS)]):
        dropout = 0.3 * (number % 2)
        batch = batches[None if options["pool"] == "max" else 2]  # rounding chooses the oracle's largest among equal atoms
        inputs = random_inputs(batch, hidden, 1 + number % 4, seed=number, dropout=dropout, **options)
        actual, expected = run(gcn, inputs), run(gcn_reference, inputs)
        assert worst(actual.outputs, expected.outputs) < TOLERANCE, (options, dropout)
        assert worst(actual.gradients, expected.gradients) < TOLERANCE, (options, dropout)


@pytest.mark.parametrize("options", [{}, {"norm": "layer", "residual": True}, {"norm": "batch", "training": True}, {"residual": True}])
def test_28_layers_in_float32(options, instruction_set):
    """Outputs are within 1e-5 and every gradient within 5e-5, or within PyTorch's own error where batch norm amplifies rounding.

    28 layers of it without residual turn the rounding of x to float32 alone into errors of 4e-6 to 8e-5 in the outputs of an exact
    computation.
    """
    batch = random_batch(SIZES, 11, bonds_per_atom=1.2, kinds=3)
    gain = 0.3 if options == {"residual": True} else 1.0  # the sum of 28 layers must not explode
    inputs = random_inputs(batch, 32, 28, torch.float32, gain=gain, **options)
    actual, torchs, expected = (
        run(gcn, inputs),
        run(gcn_reference, inputs),
        run(gcn_reference, converted(inputs, torch.float64)),
    )
    floor = 1e-5 * max(gradient.norm().item() for gradient in expected.gradients.values())  # a bias before batch norm: 0 but for rounding
    amplified = options.get("norm") == "batch"
    for name, bound, lowest in (("outputs", 1e-5, 1e-9), ("gradients", 5e-5, floor)):
        true = getattr(expected, name)
        error = worst(getattr(actual, name), true, lowest)
        assert error < (max(bound, 2 * worst(getattr(torchs, name), true, lowest)) if amplified else bound), name


NARROW_LAYER_NORM = dict(OPTIONS[0], norm="layer")  # over two features it lets hardly any gradient through
ATOMS_ALIKE = dict(OPTIONS[0], norm="batch", residual=True, add_self_loops=True, last_activation=True, training=True)  # three of them


@settings(max_examples=40)
@given(
    sizes=st.lists(st.integers(1, 90), max_size=12),
    bonds=st.floats(0, 3),
    channels=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    num_layers=st.integers(1, 5),
    options=st.sampled_from(OPTIONS),
    dropout=st.sampled_from([0.0, 0.5]),
    kinds=st.sampled_from([1, 2, None]),
    seed=st.integers(0, 2**16),
)
@example([], 1.0, (16, 2), 4, NARROW_LAYER_NORM, 0.0, 1, 1)
@example([1], 0.0, (1, 7), 2, ATOMS_ALIKE, 0.0, 1, 1)
def test_random_graphs(sizes, bonds, channels, num_layers, options, dropout, kinds, seed):
    if options["norm"] == "batch" and options["training"] and sum(sizes) < 2:
        sizes = [*sizes, 2]
    kinds = None if options["pool"] == "max" else kinds
    batch = random_batch(sizes or [1], channels[0], seed, bonds, kinds)
    inputs = random_inputs(batch, channels[1], num_layers, seed=seed, dropout=dropout, **options)
    actual, expected = run(gcn, inputs), run(gcn_reference, inputs)
    if options["norm"] == "batch" and options["training"]:  # over atoms that are alike it amplifies rounding, by 1 / sqrt(eps) a layer
        rounding = 2.0**-50 * torch.sin(torch.arange(inputs.graph.x.numel(), dtype=torch.double)).view_as(inputs.graph.x)
        moved = run(gcn_reference, changed(inputs, x=(inputs.graph.x.detach() * (1 + rounding)).requires_grad_()))
        assume(worst(moved.outputs, expected.outputs) < 1e-9 and worst(moved.gradients, expected.gradients, 1e-6) < 1e-7)
    assert worst(actual.outputs, expected.outputs) < 1e-9
    assert worst(actual.gradients, expected.gradients, 1e-6) < 1e-7  # batch norm over few atoms amplifies rounding


@pytest.mark.parametrize("options", [{}, {"norm": "batch", "training": True}, {"norm": "layer"}, {"add_self_loops": False}], ids=str)
@pytest.mark.parametrize("pool", ["mean", "max"])
def test_equal_leaves(options, pool):
    """One atom has leaves of three kinds; gradients of equal leaves are equal, and sum to the oracle's."""
    leaf_kinds = torch.tensor([0, 1, 0, 2, 0, 1, 2, 0])
    nodes = len(leaf_kinds) + 2
    source = torch.cat([torch.arange(2, nodes), torch.tensor([1])])
    pairs = torch.stack([source, torch.zeros_like(source)])
    x = torch.randn(5, 6, generator=torch.Generator().manual_seed(1))[torch.cat([torch.tensor([3, 4]), leaf_kinds])]
    batch = GraphBatch.from_pyg(Data(x=x, edge_index=torch.cat([pairs, pairs.flip(0)], 1)))
    inputs = random_inputs(batch, 8, 4, pool=pool, residual=True, **options)
    actual, expected = run(gcn, inputs), run(gcn_reference, inputs)
    assert worst(actual.outputs, expected.outputs) < TOLERANCE
    mine, right = actual.gradients.pop("x"), expected.gradients.pop("x")
    assert worst(actual.gradients, expected.gradients) < TOLERANCE
    torch.testing.assert_close(mine[:2], right[:2], rtol=1e-10, atol=1e-12)
    for kind in range(3):
        equal = 2 + torch.nonzero(leaf_kinds == kind)[:, 0]
        assert torch.equal(mine[equal], mine[equal[:1]].expand(len(equal), -1))
        torch.testing.assert_close(mine[equal].sum(0), right[equal].sum(0), rtol=1e-10, atol=1e-12)


def _mutants(inputs: GcnCall):
    """Yield mistakes that the comparison must notice: the oracle on altered inputs, or with altered results."""

    def transposed(i: GcnCall):
        return gcn_reference(changed(i, weights=[i.parameters.weights[0], *(w.T for w in i.parameters.weights[1:])]))

    def no_bias_gradient(i: GcnCall):
        return gcn_reference(changed(i, biases=[b.detach() + 0 * b for b in i.parameters.biases]))

    def no_normalisation(i: GcnCall):
        degree = torch.diff(i.graph.rowptr).to(i.graph.x.dtype) + 1
        return gcn_reference(changed(i, x=i.graph.x * degree[:, None]))

    return {
        "missing self-loop": lambda i: gcn_reference(changed(i, add_self_loops=False)),
        "transposed weight": transposed,
        "dropped bias gradient": no_bias_gradient,
        "no normalisation": no_normalisation,
        "sum for mean": lambda i: gcn_reference(changed(i, pool="sum")),
    }


@pytest.mark.parametrize("mutant", list(_mutants(None)))
def test_mutants_are_caught(mutant):
    inputs = random_inputs(random_batch(SIZES, 32, kinds=4), 32, 3)
    actual = run(gcn, inputs)
    wrong = run(_mutants(inputs)[mutant], inputs)
    found = errors(actual.outputs, wrong.outputs) | errors(actual.gradients, wrong.gradients)
    assert max(found.values()) > 1e-3


def test_a_molecule_does_not_depend_on_its_neighbours():
    """A molecule's results have the same bits beside atoms that are 1e6 times larger."""
    batch = random_batch([9, 9, 9, 9], 11)
    inputs = random_inputs(batch, 32, 12, torch.float32)
    large = inputs.graph.x.detach().clone()
    large[9:] *= 1e6
    alone, beside = gcn(inputs).pooled, gcn(changed(inputs, x=large)).pooled
    assert torch.equal(alone[0], beside[0])


def test_float32_range():
    """Activations of 1e6 and gradients of 1e-12 keep their accuracy."""
    inputs = random_inputs(random_batch(SIZES, 11), 32, 12, torch.float32)
    inputs = changed(inputs, x=(inputs.graph.x.detach() * 1e6).requires_grad_())
    double = converted(inputs, torch.float64)
    grad = torch.full((len(SIZES), 32), 1e-12, dtype=torch.float64)
    actual, expected = run(gcn, inputs, grad), run(gcn_reference, double, grad)
    assert worst(actual.outputs, expected.outputs) < 1e-5
    assert worst(actual.gradients, expected.gradients, 1e-20) < 5e-5


@pytest.mark.parametrize("options", [{}, {"norm": "batch", "residual": True}, {"norm": "layer", "dropout": 0.2}])
def test_same_bits_for_any_number_of_threads(options):
    sizes = [1 + (7 * i) % 43 for i in range(300)]
    inputs = random_inputs(random_batch(sizes, 11, kinds=3), 32, 4, torch.float32, training=True, **options)
    before, results = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3, 7):
            torch.set_num_threads(threads)
            results.append(run(gcn, inputs))
    finally:
        torch.set_num_threads(before)
    for other in results[1:]:
        for name, tensor in (results[0].outputs | results[0].gradients).items():
            assert torch.equal(tensor, (other.outputs | other.gradients)[name]), name


def test_empty_batch():
    inputs = random_inputs(random_batch([3], 5), 8, 3)
    none = torch.zeros(1, dtype=torch.int32)
    inputs = changed(inputs, x=torch.zeros(0, 5, dtype=torch.float64, requires_grad=True), ptr=none, rowptr=none, col=none[:0])
    result = run(gcn, inputs)
    assert result.outputs["pooled"].shape == (0, 8)
    assert all(not gradient.any() for gradient in result.gradients.values())


@pytest.mark.parametrize("pool", ["mean", "sum", "max"])
def test_molecule_without_atoms_pools_to_zero(pool):
    inputs = random_inputs(random_batch([3, 4], 5), 8, 2, pool=pool)
    ptr = torch.tensor([0, 3, 3, 7], dtype=torch.int32)
    actual, expected = run(gcn, changed(inputs, ptr=ptr)), run(gcn_reference, changed(inputs, ptr=ptr))
    assert not actual.outputs["pooled"][1].any()
    assert worst(actual.gradients, expected.gradients) < TOLERANCE


@pytest.mark.parametrize("norm", [None, "batch", "layer"])
@pytest.mark.parametrize("pool", ["mean", "sum", "max"])
def test_padding_weighs_nothing(norm, pool):
    """Padding filled with NaN and nonsense does not change outputs, statistics and gradients."""
    inputs = random_inputs(random_batch([3, 9, 1, 30], 5), 8, 3, norm=norm, pool=pool, training=True, residual=True, last_activation=True)
    expected = run(gcn, inputs)
    nodes, edges, graphs = inputs.graph.x.shape[0], inputs.graph.col.shape[0], inputs.graph.num_graphs
    x = torch.cat(
        [inputs.graph.x.detach(), torch.full((7, inputs.graph.x.shape[1]), torch.nan, dtype=inputs.graph.x.dtype)]
    ).requires_grad_()
    ptr = torch.cat([inputs.graph.ptr, torch.full((3,), nodes, dtype=torch.int32)])
    rowptr = torch.cat([inputs.graph.rowptr, torch.full((7,), edges, dtype=torch.int32)])
    col = torch.cat([inputs.graph.col, torch.full((5,), 10**6, dtype=torch.int32)])
    padded = changed(inputs, x=x, ptr=ptr, rowptr=rowptr, col=col)
    for wrong in (None, torch.tensor([graphs, nodes + 8, edges], dtype=torch.int32), torch.tensor([graphs, nodes, edges - 1]).int()):
        with pytest.raises(ValueError, match=r"must run|room for"):
            gcn(changed(padded, counts=wrong))
    actual = run(gcn, changed(padded, counts=torch.tensor([graphs, nodes, edges, 1], dtype=torch.int32)))
    assert not actual.outputs["pooled"][graphs:].any()
    assert torch.equal(actual.outputs.pop("pooled")[:graphs], expected.outputs.pop("pooled"))
    assert not actual.gradients["x"][nodes:].any()
    assert torch.equal(actual.gradients.pop("x")[:nodes], expected.gradients.pop("x"))
    for name, tensor in (expected.outputs | expected.gradients).items():
        assert torch.equal((actual.outputs | actual.gradients)[name], tensor), name


def test_dropout_is_reproducible_and_has_the_right_rate():
    batch = random_batch([2000], 4)
    inputs = random_inputs(batch, 16, 1, last_activation=True, dropout=0.25, training=True)
    inputs = changed(inputs, weights=[torch.zeros(16, 4).double()], biases=[torch.ones(16).double()])
    first, again = gcn(inputs).pooled, gcn(inputs).pooled
    other = gcn(changed(inputs, seed=inputs.seed + 1)).pooled
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert abs(first.mean().item() - 1) < 5 * (0.25 / 0.75 / 32000) ** 0.5
