"""Plans of heads with hidden layers fit the GPU, and say which heads are left to PyTorch."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stack_cases import A100, H100, RTX

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.head_layers_plan import plan_head, quads

GPUS = {"H100": Gpu(132, H100), "A100": Gpu(108, A100), "RTX": Gpu(46, RTX)}


@given(
    st.lists(st.integers(1, 128), min_size=2, max_size=6).map(tuple),
    st.one_of(st.integers(0, 200), st.integers(0, 2**15)),
    st.sampled_from(sorted(GPUS)),
)
def test_a_plan_fits_and_takes_all_molecules(widths, num_graphs, name):
    gpu = GPUS[name]
    plan = plan_head(widths, num_graphs, gpu)
    if plan is None:
        return
    assert plan.shared <= gpu.shared_limit and 1 <= plan.blocks <= gpu.num_multiprocessors
    assert plan.rows % 4 == 0 and 4 <= plan.rows <= 32 and (plan.blocks - 1) * plan.rows <= max(num_graphs - 1, 0)
    assert plan.is_whole == (num_graphs <= plan.rows)
    for wide, narrow, stride, forward, backward in zip(
        widths, widths[1:], plan.strides, plan.forward_chunks, plan.backward_chunks, strict=False
    ):
        assert stride > wide and stride % 8 == 4  # whole quads, an odd number of them
        assert forward > 0 and 4 * forward * stride <= plan.chunk_size
        assert backward > 0 and 4 * backward * 4 * quads(narrow) <= plan.chunk_size


@pytest.mark.parametrize(
    ("widths", "taken_by"),
    [
        ((80, 40, 20, 1), "H100 A100 RTX"),
        ((128, 100, 30, 12), "H100 A100 RTX"),
        ((128, 64, 617), "H100 A100 RTX"),
        ((300, 150, 1), ""),  # more than 2^14 hidden weights
        ((1500, 10, 1), "H100 A100"),
        ((3,) * 9, "H100 A100 RTX"),
        ((3,) * 10, ""),  # nine layers
        ((6000, 2, 1), ""),
        ((4, 0, 1), ""),
    ],
    ids=str,
)
def test_which_heads_kernels_take(widths, taken_by):
    assert [name for name, gpu in GPUS.items() if plan_head(widths, 8192, gpu)] == taken_by.split()


@pytest.mark.parametrize(("num_graphs", "taken"), [(33_000, True), (34_000, False)])
def test_how_many_molecules_kernels_take(num_graphs, taken):
    assert (plan_head((80, 40, 20, 1), num_graphs, GPUS["H100"]) is not None) == taken
