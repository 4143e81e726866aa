"""The plan of the CUDA operator for a batch is right: tiles, groups of warps and shared memory, all decided on the host."""

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from stack_cases import A100, H100, RTX, changed, random_batch, random_inputs, warps_of

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops import Graph
from molgcn.ops.gcn_network import GcnCall, GcnNetwork, Parameters
from molgcn.ops.gcn_tile_plan import Saved, backward_plan, forward_plan, next_fit, width_of
from molgcn.ops.layer_network.call import PRECISIONS, Options


def test_next_fit_keeps_molecules_whole():
    ptr = torch.tensor([0, 30, 60, 65, 165, 165, 170], dtype=torch.int32)
    assert next_fit(ptr).tolist() == [0, 2, 3, 4, 6]
    assert next_fit(torch.zeros(1, dtype=torch.int32)).tolist() == [0, 0]


@pytest.mark.parametrize("hidden", [16, 32, 64, 80, 96, 128, 172, 256])
@pytest.mark.parametrize(
    ("sizes", "tile_nodes"), [([20] * 200, 48), ([20] * 200, 64), ([20] * 200, 96), ([100] * 70, 64), ([100] * 70, 128)]
)
def test_plans_fit_the_shared_memory(hidden, sizes, tile_nodes):
    inputs = random_inputs(random_batch(sizes, 11), hidden, 28)
    inputs = changed(inputs, tile_ptr=next_fit(inputs.graph.ptr, tile_nodes), tile_nodes=tile_nodes)
    tile_rows = tile_nodes if tile_nodes <= 64 else 64 if hidden > 128 else 128 if hidden > 32 else tile_nodes  # what fits
    for limit, num_multiprocessors in itertools.product((RTX, A100, H100), (2, 30, 132)):
        for plan in (forward_plan(inputs, Gpu(num_multiprocessors, limit)), backward_plan(inputs, Gpu(num_multiprocessors, limit))):
            assert plan.shared_bytes <= limit
            assert plan.threads <= plan.max_threads
            assert 16 * plan.warps * plan.row_tiles == tile_rows
            assert plan.shared_bytes >= 4 * tile_rows * width_of(hidden) * plan.groups


@given(
    hidden=st.integers(1, 256),
    num_layers=st.integers(1, 40),
    tile_nodes=st.sampled_from([48, 64, 96, 128]),
    num_tiles=st.sampled_from([1, 3, 20, 300, 3000]),
    filled=st.floats(0.5, 1),
    precision=st.sampled_from(PRECISIONS),
    last_activation=st.booleans(),
    large_molecules=st.booleans(),
    more=st.booleans(),
    limit=st.sampled_from([RTX, A100, H100]),
)
def test_what_forward_keeps_has_room_for_its_masks(
    hidden, num_layers, tile_nodes, num_tiles, filled, precision, last_activation, large_molecules, more, limit
):
    """`mask_at` of cuda/gcn_tile.cuh places the masks after everything else."""
    num_nodes = round(num_tiles * tile_nodes * filled)
    shapes = ((num_nodes, 11), (4 * num_tiles + 1,), (num_nodes + 1,), (2 * num_nodes,), (num_tiles + 1,))
    arrays, seed = [torch.empty(shape, device="meta") for shape in shapes], torch.empty(1, device="meta")
    x, ptr, rowptr, col, tile_ptr = arrays
    graph = Graph(x, None, ptr, rowptr, col, tile_ptr=tile_ptr, tile_nodes=tile_nodes, large_molecules=large_molecules)
    network = GcnNetwork(11, hidden, num_layers, residual=more, last_activation=last_activation)
    inputs = GcnCall(graph, network, Parameters([], []), seed, Options(precision=precision))
    room = Saved(inputs).num_bytes - Saved(inputs).offsets["masks"]
    for plan in (forward_plan(inputs, Gpu(132, limit)), backward_plan(inputs, Gpu(132, limit))):
        words = (plan.row_tiles * 2 * width_of(hidden) // 4 + 31) // 32
        strips, last = 2 * num_tiles + num_nodes // plan.tile_rows + 1, num_layers - (not last_activation)
        used = (last - 1) * strips + (strips if large_molecules else num_tiles)
        assert last == 0 or 4 * 32 * used * plan.warps * words <= room


def test_64_features_in_two_warps_a_tile_where_eight_tiles_do_not_fit():
    assert warps_of(random_inputs(random_batch([40] * 7, 11), 64, 3), Gpu(1, RTX)) == [2, 2]


@pytest.mark.parametrize(
    ("num_tiles", "groups", "shared"), [(8, 8, True), (11, 11, True), (12, 12, False), (24, 12, False), (32, 11, True)]
)
def test_sums_in_shared_memory_leave_room_for_enough_groups(num_tiles, groups, shared):
    inputs = random_inputs(random_batch([60] * num_tiles, 11), 32, 28)
    plan = backward_plan(changed(inputs, tile_ptr=next_fit(inputs.graph.ptr)), Gpu(1, H100))
    assert (plan.groups, plan.shared) == (groups, shared)


@pytest.mark.parametrize(("num_multiprocessors", "warps"), [(4, 1), (6, 1), (8, 1), (28, 4)])
def test_a_padded_batch_is_planned_for_half_of_its_room(num_multiprocessors, warps):
    """The host does not know how many tiles are filled, and plans a group for each of half of them if they fit."""
    inputs = random_inputs(random_batch([20] * 200, 11), 32, 28)
    tiles = next_fit(inputs.graph.ptr)
    padded = changed(
        inputs, x=torch.cat([inputs.graph.x, inputs.graph.x[:800]]), tile_ptr=torch.cat([tiles, torch.full((100,), 200, dtype=torch.int32)])
    )
    assert padded.graph.tile_ptr.shape[0] - 1 == 167
    for plan in (forward_plan, backward_plan):
        found = plan(padded, Gpu(num_multiprocessors, H100))
        assert found.grid == num_multiprocessors
        assert found.warps == warps
        assert found.groups == min(-(-84 // num_multiprocessors), 11 if plan is backward_plan and found.shared else 12)


def test_tiles_of_one_molecule_each_are_all_filled():
    inputs = changed(random_inputs(random_batch([20] * 200, 11), 32, 28), tile_ptr=torch.arange(201, dtype=torch.int32))
    assert forward_plan(inputs, Gpu(30, H100)).groups == 7


def test_blocks_of_bf16s_backward_have_a_multiprocessor_each():
    inputs = random_inputs(random_batch([9] * 20, 11), 32, 3, precision="bf16")
    inputs = changed(inputs, tile_ptr=next_fit(inputs.graph.ptr))
    assert [2 * backward_plan(inputs, Gpu(132, limit)).shared_bytes > limit for limit in (H100, RTX)] == [True, True]
