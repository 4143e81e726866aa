"""Barriers, and the turns in which tiles add up, order all accesses to shared memory; `races.cpp` checks this in emulation."""

import emulated
import pytest
from merged_leaves_cases import inputs_of
from stack_cases import changed, random_batch, random_inputs

from molgcn.cuda_runtime.structs import Header
from molgcn.ops.gcn_tile_plan import next_fit

SIZES = [5, 9, 18, 1, 30, 1, 7, 22, 40, 64, 3]
LARGE = [5, 70, 3, 200, 1, 8]
Parameters = Header("exchange_structs.h", Parameters=[("int", "how")]).ctype()
KERNEL = """
#include "device.cuh"
#include "exchange_structs.h"
__global__ void exchange(const Parameters p) {
    SHARED_MEMORY(memory);
    float* x = reinterpret_cast<float*>(memory) + 1;
    int* turn = reinterpret_cast<int*>(memory);
    const int other = p.how % 10 == 0 ? threadIdx.x ^ 1 : threadIdx.x ^ 32;
    if (threadIdx.x == 0) *turn = 0;
    __syncthreads();
    if (p.how == 21 && threadIdx.x >= 32) {  // the second warp takes its turn after the first
        while (load_acquire_block(turn) != 1) spin();
        __syncwarp();
    }
    x[threadIdx.x] = 1.0f;
    if (p.how == 10 || p.how == 11 || p.how == 21) __syncwarp();
    if (p.how == 31) __syncthreads();
    if (p.how == 40) shuffle_xor(1.0f, 1);
    if (p.how == 21 && threadIdx.x == 0) store_release_block(turn, 1);
    if (p.how != 21 || threadIdx.x >= 32) x[64 + threadIdx.x] = x[other];
}
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """Return the path of the kernel, which is compiled once."""
    path = tmp_path_factory.mktemp("source") / "exchange.cu"
    path.write_text(KERNEL)
    return path


@pytest.fixture
def find_races(emulate):
    emulate.find_races = True
    emulate.properties = emulate.properties._replace(num_barriers=3)  # two groups of several tiles each
    return emulate


@pytest.mark.parametrize(
    ("how", "ordered"),
    [
        pytest.param(0, False, id="lanes, nothing"),
        pytest.param(10, True, id="lanes, __syncwarp"),
        pytest.param(40, False, id="lanes, a shuffle"),
        pytest.param(1, False, id="warps, nothing"),
        pytest.param(11, False, id="warps, __syncwarp"),
        pytest.param(21, True, id="warps, a turn"),
        pytest.param(31, True, id="warps, __syncthreads"),
    ],
)
def test_what_orders(find_races, source, how, ordered):
    kernel = find_races.kernel(str(source), "exchange", {}, None)
    if ordered:
        kernel.launch(1, 64, 1024, Parameters(how))
    else:
        with pytest.raises(AssertionError, match=r"nothing orders, of lines .*exchange\.cu"):
            kernel.launch(1, 64, 1024, Parameters(how))


@pytest.mark.parametrize("sizes", [SIZES, pytest.param(LARGE, marks=pytest.mark.slow)], ids=["small", "large"])
@pytest.mark.parametrize(
    ("hidden", "options"),
    [
        (32, {}),
        (16, {"tile_nodes": 48, "norm": "layer", "residual": True, "pool": "max"}),
        pytest.param(32, {"tile_nodes": 96, "precision": "bf16"}, marks=pytest.mark.slow),
        pytest.param(32, {"strategy": "layer", "norm": "batch", "training": True}, marks=pytest.mark.slow),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                (32, {"precision": "bf16"}),
                (32, {"tile_nodes": 48, "precision": "bf16"}),
                (32, {"tile_nodes": 96}),
                (32, {"tile_nodes": 128, "precision": "tf32"}),
                (64, {"norm": "layer", "residual": True, "dropout": 0.3, "training": True}),
                (64, {"precision": "bf16"}),
                (96, {}),
                (96, {"precision": "bf16"}),
                (128, {"precision": "tf32"}),
            )
        ),
    ],
    ids=str,
)
def test_atoms(find_races, hidden, options, sizes):
    emulated.run_emulated(random_inputs(random_batch(sizes, 11, bonds_per_atom=1.2), hidden, 3, **options))


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [SIZES, pytest.param(LARGE, marks=pytest.mark.slow)], ids=["small", "large"])
@pytest.mark.parametrize("options", [{}, {"precision": "bf16", "tile_nodes": 48}], ids=str)
def test_rows(find_races, options, sizes):
    inputs = inputs_of([max(size, 2) for size in sizes], 11, 32, 3, **options)[0]
    emulated.run_emulated(changed(inputs, tile_ptr=next_fit(inputs.graph.ptr, inputs.graph.tile_nodes)))
