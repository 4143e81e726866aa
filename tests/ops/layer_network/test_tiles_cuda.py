"""Networks on tiles of whole molecules under emulation agree with PyTorch over whole forward and backward passes."""

from __future__ import annotations

import pytest
import torch
from architectures import ARCHITECTURES, architectures
from emulated import Compiler, gpu_memory
from layer_network_cases import Found, options_of, padded, passes, random_call, worst_difference, worst_gradient
from plain_steps import PlainSteps
from stack_cases import A100, H100, RTX
from tiles_cases import CASES, SIZES, single

from molgcn.cuda_runtime.launch import Gpu, launching_by
from molgcn.ops.layer_network import engine
from molgcn.ops.layer_network.call import LayerNetworkCall
from molgcn.ops.layer_network.steps_cuda import CudaSteps
from molgcn.ops.layer_network.tiles_cuda import TileSteps
from molgcn.ops.layer_network.tiles_plan import TilePlan, fits, why_not
from molgcn.ops.layer_network.tiles_program import forward_pass


def emulated(call: LayerNetworkCall, **options: float) -> Found:
    """Return the kernels' results; memory that no kernel wrote is NaN."""
    assert why_not(call) is None
    with gpu_memory():
        return passes(call, TileSteps, **options)


def check(call: LayerNetworkCall, bound: float = 2e-6, gradient_bound: float = 2e-5) -> None:
    """Check outputs and gradients of a call in float64 against PyTorch."""
    actual, expected = emulated(single(call)), passes(call, PlainSteps)
    assert worst_difference(actual.outputs, expected.outputs) < (bound,)
    assert worst_gradient(actual, expected) < (gradient_bound,)


def slow_but(cases, *fast):
    """Return the cases, marked slow unless they are among `fast`."""
    return [case if case in fast else pytest.param(case, marks=pytest.mark.slow) for case in cases]


@pytest.mark.parametrize("network", slow_but(CASES, "gine", "tanh"))
def test_every_option(emulate, network):
    """Results agree with and without dropout, whose random numbers are the same."""
    check(random_call(options_of(network, 20), sizes=SIZES, training=CASES[network]))


@pytest.mark.parametrize("network", ["gine", pytest.param("gcn_edge", marks=pytest.mark.slow)])
def test_what_is_kept_for_backward_does_not_change_the_result(emulate, network):
    """The launch reads the bonds' rows of all layers."""
    call = single(random_call(options_of(network, 20), sizes=SIZES, training=CASES[network]))
    not_kept = call._replace(options=call.options._replace(save_for_backward=False))
    with torch.no_grad(), gpu_memory():
        assert torch.equal(engine.forward(not_kept, TileSteps).pooled, engine.forward(call, TileSteps).pooled)


@pytest.mark.parametrize("coded", slow_but([True, False], True))
@pytest.mark.parametrize("network", ["gine", "sage", pytest.param("feed-forward, layer", marks=pytest.mark.slow)])
def test_values_computed_again_have_the_same_bits(emulate, network, coded):
    call = single(random_call(options_of(network, 20), sizes=SIZES, training=CASES[network], coded=coded))
    expected, actual = emulated(call), emulated(call._replace(options=call.options._replace(recompute=True)))
    for one, other in ((actual.outputs, expected.outputs), (actual.gradients, expected.gradients)):
        assert all(torch.equal(one[name], tensor) for name, tensor in other.items())


@pytest.mark.slow
@pytest.mark.parametrize("network", ["gine", "gcn_edge"])
def test_a_row_for_each_bond(emulate, network):
    check(random_call(options_of(network, 20), sizes=SIZES, training=CASES[network], coded=False))


@pytest.mark.slow
@pytest.mark.parametrize(("network", "hidden"), [("gine", 1), ("feed-forward, layer", 1), ("sage", 60), ("feed-forward, layer", 31)])
def test_widths(emulate, network, hidden):
    # With seed 0 terms of gine's one column cancel, so that float32 in PyTorch itself misses the bound.
    check(random_call(options_of(network, hidden, in_channels=5), sizes=[5, 9, 1, 30], training=CASES[network], seed=1))


@pytest.mark.slow
def test_tiles_of_many_atoms_and_atoms_of_many_bonds(emulate):
    """More than four bonds at an atom are read anew by every layer."""
    call = random_call(options_of("gine", 20), sizes=[100, 5, 128, 3, 3], training=False)
    assert call.graph.most_in_tile == 128
    assert call.graph.rowptr.diff().max() > 4
    check(call)


@pytest.mark.parametrize("coded", slow_but([True, False], True))
def test_padded_batches(emulate, coded):
    """Padding for molecules, atoms and bonds is neither read nor counted, and its gradients are zero."""
    call = random_call(options_of("gine", 20), sizes=SIZES, training=False, coded=coded)
    expected, actual = passes(call, PlainSteps), emulated(padded(single(call), torch.nan), poison=torch.nan)
    pooled, of_x, of_bonds = actual.outputs["pooled"], actual.gradients["x"], actual.gradients["bonds"]
    assert not pooled[-2:].any()
    assert not of_x[-7:].any()
    assert coded or not of_bonds[-9:].any()
    actual.outputs["pooled"], actual.gradients["x"] = pooled[:-2], of_x[:-7]
    actual.gradients["bonds"] = of_bonds if coded else of_bonds[:-9]
    assert worst_difference(actual.outputs, expected.outputs) < (2e-6,)
    assert worst_gradient(actual, expected) < (2e-5,)


@pytest.mark.parametrize("sizes", [[1], [1, 0, 1]], ids=str)
def test_hardly_any_atoms(emulate, sizes):
    check(random_call(options_of("gine", 20), sizes=sizes, training=False))


def test_no_molecule_depends_on_others(emulate):
    """Neighbours in a tile whose features are 1e6 times larger do not change a bit."""
    call = single(random_call(options_of("gine", 20), sizes=[5, 9, 18, 30], training=False))
    plain = emulated(call)
    x = call.graph.x.clone()
    x[5:14] *= 1e6
    large = emulated(call._replace(graph=call.graph._replace(x=x)))
    others, atoms = [0, 2, 3], [*range(5), *range(14, 62)]
    assert torch.equal(plain.outputs["pooled"][others], large.outputs["pooled"][others])
    assert torch.equal(plain.gradients["x"][atoms], large.gradients["x"][atoms])


@pytest.mark.parametrize("slice_of_warps", [3, -3])
def test_the_order_of_warps_does_not_matter(emulate, slice_of_warps):
    call = single(random_call(options_of("gine", 20), sizes=SIZES, training=False))
    expected = emulated(call)
    emulate.slice_of_warps = slice_of_warps
    actual = emulated(call)
    for name, tensor in (expected.outputs | expected.gradients).items():
        assert torch.equal((actual.outputs | actual.gradients)[name], tensor), name


def test_a_molecule_that_breaks_the_promise_has_no_result(emulate):
    """Memory beyond what was asked for stays as it is; `gpu_memory` checks it."""
    call = single(random_call(options_of("gine", 20), sizes=[5, 100, 9], training=False))
    tile_ptr = torch.arange(4, dtype=torch.int32)
    found = emulated(call._replace(graph=call.graph._replace(tile_ptr=tile_ptr, tile_nodes=64)))
    assert found.outputs["pooled"].isnan().all(1).tolist() == [False, True, False]


@pytest.mark.parametrize("limit", [H100, A100, RTX])
@pytest.mark.parametrize("network", CASES)
def test_plans(network, limit):
    """Tiles of 64 atoms with a few distinct bonds fit into any GPU; the largest ones only into some."""
    for sizes, kinds in (([60], 4), ([128], 16)):
        call = single(random_call(options_of(network, 32), sizes=sizes, kinds=kinds, training=CASES[network]))
        assert fits(call, Gpu(132, limit)) or sizes == [128]
        plan = TilePlan.of(call, (forward_pass(call.program, frozenset()),), Gpu(132, limit))
        assert plan.min_blocks * (plan.shared_bytes + 1024) <= limit + 1024 or plan.min_blocks == 1
        assert 32 * plan.warps * plan.min_blocks <= 512


def test_backward_is_compiled_beside_forward(emulate):
    call = single(random_call(options_of("gine", 20), sizes=SIZES, training=False))
    emulated(call._replace(graph=call.graph._replace(x=call.graph.x.requires_grad_())))
    backward = [(source, macros) for source, macros in emulate.used if macros.get("BACKWARD")]
    assert backward
    assert all(each in emulate.prefetched for each in backward)


@pytest.mark.slow
@pytest.mark.parametrize("network", ["gine", "feed-forward, layer"])
def test_barriers_order_all_accesses_to_shared_memory(emulate, network):
    emulate.find_races = True
    emulated(single(random_call(options_of(network, 6), sizes=[5, 9, 1, 60], training=CASES[network])))


@pytest.mark.parametrize(
    ("network", "options", "reason"),
    [
        ("gine", {}, "batch norm"),
        ("gine", {"training": False, "sizes": [200]}, "at most 128 atoms"),
        ("gine", {"training": False, "kinds": 17}, "distinct bonds"),
        ("sage, max", {}, "maxima"),
        ("gine, no norm, max", {}, "maxima"),
    ],
)
def test_what_tiles_cannot_compute(network, options, reason):
    assert reason in str(why_not(single(random_call(options_of(network), **options))))
    deep = single(random_call(options_of("gin, layer norm, sum", num_layers=30)))
    assert "instructions" in str(why_not(deep))
    assert "64 columns" in str(why_not(single(random_call(options_of("gin, layer norm, sum", 65)))))
    assert "float32" in str(why_not(random_call(options_of("gin, layer norm, sum"))))


@pytest.mark.parametrize("arch", architectures("sm_90"))
def test_compiles_for_every_architecture(arch):
    network = ("gine", "gin, layer norm, sum")[ARCHITECTURES.index(arch) % 2]
    with launching_by(compiler := Compiler(arch, ("tile_", "part_"))):
        emulated(single(random_call(options_of(network, 20), training=CASES[network], sizes=[5, 3])))
    assert "tile_network.cu" in compiler.sources
    assert network != "gine" or "part_sums.cu" in compiler.sources


@pytest.mark.parametrize("engine", slow_but([TileSteps, CudaSteps], TileSteps))
@pytest.mark.parametrize("sizes", [[], [0, 0]])
def test_batches_without_atoms(emulate, sizes, engine):
    """Gradients of all parameters are zero."""
    call = single(random_call(options_of("gin, layer norm, sum", 20), sizes=sizes, training=True))
    with gpu_memory():
        found = passes(call, engine)
    assert all(not gradient.any() for gradient in found.gradients.values())
