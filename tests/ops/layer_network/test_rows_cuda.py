"""Kernels on rows under emulation agree with PyTorch over whole forward and backward passes of networks."""

from itertools import islice, product

import pytest
import torch
from architectures import ARCHITECTURES, EVERY_ARCHITECTURE, FAST
from emulated import Compiler, gpu_memory
from layer_network_cases import NETWORKS, Found, network_options, options_of, padded, passes, random_call, worst_difference, worst_gradient
from pass_values import fill, keep_moments
from plain_steps import PlainSteps
from products_cases import call_of, kernels_of, saved_of
from stack_cases import H100

from molgcn.cuda_runtime.launch import Gpu, launching_by
from molgcn.ops.layer_network.call import LayerNetworkCall
from molgcn.ops.layer_network.gradient_steps import FinishGrad
from molgcn.ops.layer_network.passes import Pass
from molgcn.ops.layer_network.steps import Finish
from molgcn.ops.layer_network.steps_cuda import CudaSteps


def emulated(call: LayerNetworkCall, **options: float) -> Found:
    """Return the kernels' results; memory that no kernel wrote is NaN."""
    with gpu_memory():
        return passes(call, CudaSteps, **options)


def check(call: LayerNetworkCall, bound: float = 1e-10) -> None:
    actual, expected = emulated(call), passes(call, PlainSteps)
    assert worst_difference(actual.outputs, expected.outputs) < (bound,)
    assert worst_gradient(actual, expected) < (bound,)


def slow_but(cases, *fast):
    """Return the cases, marked slow unless they are among `fast`."""
    return [
        case if case in fast else pytest.param(*(case if isinstance(case, tuple) else [case]), marks=pytest.mark.slow) for case in cases
    ]


@pytest.mark.parametrize("training", slow_but([True, False], True))
@pytest.mark.parametrize("network", NETWORKS)
def test_every_option_in_float64(emulate, network, training):
    check(random_call(options_of(network), training=training, coded=len(network) % 2 == 0))


@pytest.mark.parametrize("hidden", slow_but([1, 3, 70, 130], 3, 130))
@pytest.mark.parametrize("network", ["gine", "sage, max", "feed-forward, layer"])
def test_widths(emulate, network, hidden):
    """Widths range from one column to rows that several blocks share; bonds' rows are as wide as the atoms', or mapped."""
    check(random_call(options_of(network, hidden, in_channels=4), sizes=[5, 9, 1], coded=hidden % 2 == 0))


@pytest.mark.parametrize("hidden", slow_but([1024, 1030, 2048], 1030))
@pytest.mark.parametrize(
    "network", slow_but(["gine", "gcn without loops", "sage, max", "feed-forward"], "feed-forward", "gcn without loops")
)
def test_wide_networks(emulate, network, hidden):
    """The project's kernels multiply up to a width of 1,024, and PyTorch beyond. The gradient of eps is one sum of numbers that cancel."""
    options = options_of(network, hidden, in_channels=4, num_layers=1)
    check(random_call(options, sizes=[5, 1]))
    actual, expected = (
        emulated(random_call(options, sizes=[5, 1], dtype=torch.float32)),
        passes(random_call(options, sizes=[5, 1]), PlainSteps),
    )
    assert worst_difference(actual.outputs, expected.outputs) < (2e-5,)
    assert worst_gradient(actual, expected) < (5e-4,)


@pytest.mark.parametrize("norm", [None, "batch", "layer"])
def test_what_is_not_a_number_stays_so(emulate, norm):
    """Dropout passes NaN on, as PyTorch does, whichever kernel applies it."""
    for dtype in (torch.float32, torch.float64):
        call = random_call(network_options("gin", 7, 10, 2, norm=norm, dropout=0.9), sizes=[5, 9], dtype=dtype)
        assert emulated(call._replace(graph=call.graph._replace(x=call.graph.x * torch.nan))).outputs["pooled"].isnan().all()


def check_again(call: LayerNetworkCall) -> None:
    """Check that values computed again in backward leave the bits of all results as they are."""
    expected, actual = emulated(call), emulated(call._replace(options=call.options._replace(recompute=True)))
    for one, other in ((actual.outputs, expected.outputs), (actual.gradients, expected.gradients)):
        assert all(torch.equal(one[name], tensor) for name, tensor in other.items())


@pytest.mark.parametrize("network", slow_but(NETWORKS, "gine", "gcn", "feed-forward", "gated_gcn"))
def test_values_computed_again_have_the_same_bits(emulate, network):
    check_again(random_call(options_of(network), sizes=[5, 9, 1], coded=len(network) % 2 == 0))


@pytest.mark.slow
@pytest.mark.parametrize("network", ["feed-forward", "sage, batch norm"])
def test_values_computed_again_in_float32(emulate, network):
    """Forward takes norms into products; the sums for norms' gradients are made by other launches, and round differently."""
    call = random_call(options_of(network, 20, in_channels=20), sizes=[150] * 15, dtype=torch.float32)
    expected, actual = emulated(call), emulated(call._replace(options=call.options._replace(recompute=True)))
    assert torch.equal(actual.outputs["pooled"], expected.outputs["pooled"])
    assert worst_gradient(actual, expected) < (1e-4,)


def test_the_pooling_ends_the_last_layer_and_leaves_sums(emulate):
    emulated(random_call(options_of("gine")))
    pooling = [macros for source, macros in emulate.used if source == "rows_pool.cu"]
    assert [(macros["ENDS"], macros["LEAVES"]) for macros in pooling] == [(1, 0), (0, 1)]


def test_parts_of_bonds_that_layers_share_are_added_up_once(emulate):
    spec = network_options(conv="gine", in_channels=8, hidden_channels=8, num_layers=3, edge_channels=8, norm="batch")
    emulated(random_call(spec, dtype=torch.float32, sizes=[40, 90]))
    assert [source for source, _ in emulate.used].count("part_sums.cu") == 1


@pytest.mark.slow
@pytest.mark.parametrize("training", slow_but([True, False], True))
@pytest.mark.parametrize("network", NETWORKS)
def test_float32(emulate, network, training):
    options = options_of(network, 12, in_channels=8)  # as in tests of plans, which take the same kernels
    call = random_call(options, dtype=torch.float32, training=training)
    actual, expected = emulated(call), passes(random_call(options, training=training), PlainSteps)
    assert worst_difference(actual.outputs, expected.outputs) < (2e-5,)
    assert worst_gradient(actual, expected) < (2e-4,)


@pytest.mark.parametrize("network", slow_but(["gin", "gine", "feed-forward"], "gine"))
def test_more_atoms_than_a_block_holds(emulate, network):
    check(random_call(options_of(network, 6), sizes=[150] * 15))


@pytest.mark.parametrize("network", slow_but(["gine", "feed-forward", "sage, max"], "gine"))
def test_narrow_teams_of_a_small_batch(emulate, network):
    """A batch with more than FEW_PARTS blocks of rows, whose columns many blocks share."""
    check(random_call(options_of(network, 70), sizes=[150] * 5 + [25]))


def test_more_kinds_of_bonds_than_a_block_holds(emulate):
    check(random_call(options_of("gine"), kinds=37))


def check_padded(call: LayerNetworkCall, atoms: int = 7) -> None:
    expected, actual = passes(call, PlainSteps), emulated(padded(call, 1e3, atoms), poison=torch.nan)
    rows = atoms if call.program.pool == "none" else 2
    assert not actual.outputs["pooled"][-rows:].any()
    assert not actual.gradients["x"][-atoms:].any()
    actual.outputs["pooled"], actual.gradients["x"] = actual.outputs["pooled"][:-rows], actual.gradients["x"][:-atoms]
    if "bonds" in actual.gradients and call.graph.code is None:
        assert not actual.gradients["bonds"][-9:].any()
        actual.gradients["bonds"] = actual.gradients["bonds"][:-9]
    assert worst_difference(actual.outputs, expected.outputs) < (1e-10,)
    assert worst_gradient(actual, expected) < (1e-10,)


@pytest.mark.parametrize("coded", [True, False])
@pytest.mark.parametrize("network", slow_but(NETWORKS, "gine", "gcn", "sage, max"))
def test_padded_batches(emulate, network, coded):
    """Padding for molecules, atoms and bonds is neither read nor counted, and its gradients are zero.

    The products multiply rows of x there by zeros, so that these must be finite.
    """
    check_padded(random_call(options_of(network), coded=coded))


@pytest.mark.parametrize("network", slow_but(["gin, layer norm, sum", "gine", "sage", "sage, sum"], "gine", "sage, sum"))
def test_states_of_atoms(emulate, network):
    """Without pooling the result has a row for each atom, and zeros for padding, whose gradients are not read."""
    options = options_of(network)._replace(pool="none")
    check(random_call(options, sizes=[5, 9, 0, 1]))
    call = random_call(options)
    actual, expected = emulated(padded(call, 1e3), poison=torch.nan), passes(call, PlainSteps)
    assert not actual.outputs["pooled"][-7:].any()
    actual.outputs["pooled"], actual.gradients["x"] = actual.outputs["pooled"][:-7], actual.gradients["x"][:-7]
    assert worst_difference(actual.outputs, expected.outputs) < (1e-10,)
    assert worst_gradient(actual, expected) < (1e-10,)
    call = random_call(options, dtype=torch.float32)
    assert worst_difference(emulated(call).outputs, expected.outputs) < (2e-5,)


@pytest.mark.parametrize("network", slow_but(NETWORKS, "gine", "gcn"))
def test_more_padding_than_atoms(emulate, network):
    """Blocks that have padding alone leave no parts of norms that count."""
    emulate.properties = Gpu(20, H100)
    check_padded(random_call(options_of(network), sizes=[60] * 8), 600)


@pytest.mark.parametrize("network", slow_but(["gine", "gcn", "sage, max", "feed-forward"], "gcn"))
def test_padding_of_large_batches(emulate, network):
    """In a large batch every other launch begins with the last rows, that is with padding."""
    check_padded(random_call(options_of(network, 3, num_layers=2), sizes=[150] * 56, coded=False))


@pytest.mark.parametrize("first", [0.0, 100.0])
@pytest.mark.parametrize("real", [4300, 4000, 1])
def test_moments_of_rows_far_from_zero(emulate, real, first):
    """Large means do not cancel, also where the first of a block's teams, or the first of all blocks, have padding alone.

    Distances are those from a block's first row. Where that is far from the others, its own square is as large as what they lose.
    """
    emulate.properties = Gpu(200, H100)
    call = call_of(8, 8, real, padding=9000 - real, norm="batch")
    run = Pass(call, saved_of(call), backward=False, signs_alone=True)
    step = next(step for step in run.program.steps if isinstance(step, Finish) and step.norm is not None)
    rows, source = kernels_of(run)[0], run.rows(step.source)
    source.tensor.fill_(torch.nan)
    values = 1000 + torch.randn(real, 8, generator=torch.Generator().manual_seed(0))
    values[0] += first
    source.values[:real] = values
    with torch.no_grad(), gpu_memory():
        rows.leave_moments(step)
        rows.forward(step, None)
    variance, mean = torch.var_mean(values.double(), 0, correction=0)
    torch.testing.assert_close(
        run.moments(step.norm).double(), torch.stack([mean, (variance + run.program.eps).rsqrt()]), rtol=1e-6, atol=0
    )


def test_sums_of_large_batches_are_rounded_once(emulate):
    """All terms of the gradients of a norm's weight are positive, so that none of the sums' errors cancel."""
    emulate.properties = Gpu(200, H100)
    call = call_of(8, 8, 9000, norm="batch")
    run = Pass(call, saved_of(call), backward=True, signs_alone=True, grad_x=True)
    step = next(step for step in run.backward.steps if isinstance(step, FinishGrad) and step.step.norm is not None)
    source, gradient = fill(run, run.rows(step.step.source), "atoms", even=True).double(), run.gradient(step.grad)
    keep_moments(run, step.step, source)
    normal = (source - source.mean(0)) / (source.var(0, correction=0) + run.program.eps).sqrt()
    gradient.values.copy_(normal)
    expected = (gradient.values.double() * normal).sum(0)
    with torch.no_grad(), gpu_memory():
        rows = kernels_of(run)[0]
        rows.leave_sums(step)
        rows.backward(step, None)
    found = run.grad_parameters[f"{step.step.norm}.weight"].double()
    torch.testing.assert_close(found, expected, rtol=1e-7, atol=0)


@pytest.mark.parametrize("sizes", [[], [0, 0], [1], [1, 0, 1]], ids=str)
@pytest.mark.parametrize("network", ["gine", "gcn", "sage, max"])
def test_hardly_any_atoms(emulate, network, sizes):
    """A single atom has no variance, for which PyTorch raises in training."""
    check(random_call(options_of(network), sizes=sizes, training=False, coded=len(sizes) != 1))


def test_no_atoms_leave_running_statistics_as_they_are(emulate):
    call = random_call(options_of("gine"), sizes=[0, 0])
    found = emulated(call)
    assert torch.equal(found.outputs["statistics"].flatten(0, 1), torch.stack(list(call.statistics)))
    assert not any(gradient.any() for gradient in found.gradients.values())


@pytest.mark.slow
@pytest.mark.parametrize("network", [name for name in NETWORKS if name not in ("gelu", "silu", "leaky relu", "elu", "tanh")])
def test_barriers_order_all_accesses_to_shared_memory(emulate, network):
    emulate.find_races = True
    emulated(random_call(options_of(network, 6, num_layers=1), sizes=[5, 9, 1]))
    emulated(random_call(options_of(network, 6, num_layers=1), sizes=[150] * 15))


SOURCES = ("prepare", "gather", "gather_grad", "finish", "finish_grad", "layer_norm", "normalize", "pad", "pool")
SOURCES += ("attend", "attend_grad", "edges", "gate")


@pytest.mark.parametrize("arch", EVERY_ARCHITECTURE)
def test_every_file_compiles_for_every_architecture(arch):
    with launching_by(compiler := Compiler(arch, "rows_")):
        networks = ("gin", "gine", "gcn_edge", "sage", "sage, max", "gat", "gatv2", "dmpnn", "gated_gcn")
        cases = product(([5, 3], [9000]), networks)
        for sizes, network in islice(cases, ARCHITECTURES.index(arch) % 2, None, 2):
            emulated(random_call(options_of(network, num_layers=2), dtype=torch.float32, sizes=sizes, training=network != "gin"))
    assert compiler.sources == {f"rows_{name}.cu" for name in SOURCES}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_every_option_compiles_for_every_architecture(arch, dtype):
    """Networks compile by turns: in each dtype for one of two architectures that kernels treat differently, and for one of the others."""
    turns = FAST if arch in FAST else [each for each in ARCHITECTURES if each not in FAST]
    first = (turns.index(arch) + (dtype == torch.float64)) % len(turns)
    networks = islice(NETWORKS, first, None, len(turns))
    with launching_by(Compiler(arch)):
        for network in networks:
            for sizes in ([5, 3], [3000]):
                emulated(random_call(options_of(network, num_layers=1), dtype=dtype, sizes=sizes, coded=len(network) % 2 == 0))
