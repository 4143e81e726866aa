"""All layers with batch statistics in one launch agree with the float64 oracle, under emulation with clusters."""

import pytest
from architectures import by_turns
from compiling import compiles
from stack_cases import H100, RTX, changed, random_batch, random_inputs
from test_gcn_rows_cuda import check
from test_gcn_tile_cuda import SIZES

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.gcn_chain_plan import chains
from molgcn.ops.gcn_layers_macros import layer_macros, prepare_macros, weights_macros
from molgcn.ops.gcn_layers_plan import pool_blocks
from molgcn.ops.gcn_weights_plan import weight_blocks

OPTIONS = [
    {},
    {"residual": True, "last_activation": True, "add_self_loops": False},
    {"residual": True, "last_activation": True, "pool": "max", "dropout": 0.3},
    {"pool": "sum", "dropout": 0.3, "add_self_loops": False},
]


@pytest.mark.parametrize(("num_multiprocessors", "options"), list(zip((8, 40, 8, 40), OPTIONS, strict=True)), ids=str)
def test_every_option(emulate, num_multiprocessors, options):
    """Bonds lead to atoms within blocks, to the halo and to atoms for which it has no room, in one cluster and in several."""
    emulate.properties = Gpu(num_multiprocessors, H100, True)
    check(random_inputs(random_batch(SIZES, 11, bonds_per_atom=1.2), 20, 3, norm="batch", training=True, **options))
    assert {"gcn_chain_forward.cu", "gcn_chain_backward.cu"} <= emulate.sources


@pytest.mark.parametrize("full", ["gcn_chain_forward.cu", "gcn_chain_backward.cu"])
def test_the_family_s_steps_where_a_pass_finds_no_room(emulate, full):
    emulate.properties, emulate.full = Gpu(8, H100, True), {full}
    check(random_inputs(random_batch(SIZES, 11, bonds_per_atom=1.2), 20, 3, norm="batch", training=True, **OPTIONS[2]))
    assert {"rows_gather.cu", "rows_gather_grad.cu"} <= emulate.sources
    assert "gcn_layer_prepare.cu" not in emulate.sources


def test_plans():
    """A plan has the smallest blocks that fit on the GPU; there is none where one launch cannot hold all layers."""
    inputs = random_inputs(random_batch([23] * 128, 28), 172, 3, norm="batch", training=True)
    plan = next(chains(inputs, Gpu(132, H100, True)))
    assert (plan.tiles, plan.cluster, plan.num_blocks) == (3, 8, 128)
    assert all(plan.shared_bytes <= H100 and plan.num_blocks <= 132 for plan in chains(inputs, Gpu(132, H100, True)))
    assert all(plan.num_blocks * plan.rows >= inputs.graph.x.shape[0] for plan in chains(inputs, Gpu(132, H100, True)))
    assert not list(chains(inputs, Gpu(132, H100, False)))
    assert not list(chains(inputs, Gpu(132, RTX, True)))
    assert not list(chains(inputs, Gpu(40, H100, True)))
    assert not list(chains(changed(inputs, training=False), Gpu(132, H100, True)))


SLOW = [pytest.param(*case, marks=pytest.mark.slow) for case in (("sm_100", 172), ("sm_120", 32))]


@pytest.mark.parametrize(("arch", "hidden"), [("sm_90", 172), *SLOW])
def test_compiles(arch, hidden):
    macros = {"HIDDEN": hidden, "PRECISION": 0, "DROPOUT": 1, "SELF_LOOPS": 1, "POOL": 2, "MAX_LAYERS": 32, "TILES": 3, "CLUSTER": 8}
    for name in ("gcn_chain_forward.cu", "gcn_chain_backward.cu"):
        assert compiles(name, macros, arch)


@pytest.mark.parametrize(("arch", "hidden", "norm"), by_turns([(128, "layer"), (172, "batch")]))
def test_what_chains_and_molecules_share_compiles(arch, hidden, norm):
    inputs = random_inputs(random_batch([23] * 128, 28), hidden, 3, norm=norm, training=True, dropout=0.3, pool="max")
    gpu = Gpu(132, H100, True)
    for backward in (False, True):
        assert compiles("gcn_layer_prepare.cu", prepare_macros(inputs, 3, backward), arch)
    assert compiles("gcn_layer_weights.cu", weights_macros(inputs, 3, weight_blocks(inputs, 0, 3, gpu)), arch)
    assert norm != "batch" or compiles("gcn_layer_pool.cu", layer_macros(inputs, pool_blocks(inputs, gpu)), arch)
