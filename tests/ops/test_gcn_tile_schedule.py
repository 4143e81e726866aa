"""The host's estimate of the time of tiles is plausible."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.gcn_tile_schedule import MIDDLE_TILE, SMALL_TILE, block_time, quickest_groups, time_of_tiles


def test_groups_keep_four_schedulers_equally_busy():
    assert [quickest_groups(tiles, 11, 1) for tiles in (1, 9, 11, 12, 18, 41)] == [1, 9, 11, 8, 10, 11]
    assert quickest_groups(38, 12, 1) == 12


def test_two_warps_on_one_scheduler_hinder_each_other():
    assert block_time(1, 1, 1) == block_time(4, 4, 1) == block_time(2, 2, 2) == 1
    assert block_time(5, 5, 1) == block_time(3, 3, 2) == pytest.approx(1.3)
    assert block_time(5, 4, 1) == 2


@given(tiles=st.integers(1, 60), warps=st.integers(1, 4), data=st.data())
def test_no_number_of_groups_is_quicker(tiles, warps, data):
    most = data.draw(st.integers(1, 16 // warps))  # a block has at most 512 threads
    groups = quickest_groups(tiles, most, warps)
    times = [block_time(tiles, other, warps) for other in range(1, most + 1)]
    assert times[groups - 1] == min(times) <= tiles
    assert min(times) >= tiles * warps / 8  # four schedulers, each at most twice as quick with four warps as with one


@pytest.mark.parametrize(("tile_nodes", "at_once"), [(SMALL_TILE, 12), (64, 12), (MIDDLE_TILE, 6)])
def test_only_the_busiest_multiprocessor_counts(tile_nodes, at_once):
    gpu = Gpu(132, 227 * 1024)
    assert time_of_tiles(1, tile_nodes, gpu) == time_of_tiles(132, tile_nodes, gpu)
    assert time_of_tiles(at_once * 132, tile_nodes, gpu) < time_of_tiles(at_once * 132 + 1, tile_nodes, gpu)
    assert time_of_tiles(at_once * 132, tile_nodes, gpu, "bf16") < time_of_tiles(at_once * 132, tile_nodes, gpu)
