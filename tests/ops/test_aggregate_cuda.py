"""The kernels of `molgcn::aggregate` agree with the float64 oracle under emulation, and all of them compile."""

import itertools

import pytest
import torch
from aggregate_cases import BOUNDS, expected_of, gradient_of, leaves, random_inputs, worst
from architectures import by_turns
from compiler import needs_compiler
from compiling import compiles

from molgcn.ops import aggregate_cuda
from molgcn.ops.aggregate import AggregateInputs
from molgcn.ops.aggregate_plan import Plan, lanes_for, plan, vector
from molgcn.ops.edge_graph import EdgeGraph

CASES = [  # channels, weights of an edge, options
    (16, 1, {"reduce": "mean", "strategy": "neighbor_group", "group_size": 5}, torch.float32),
    (12, 12, {"reduce": "max", "strategy": "neighbor_group", "group_size": 5}, torch.float32),
    (24, 4, {"reduce": "sum", "strategy": "neighbor_group", "group_size": 3, "deterministic": False}, torch.float64),
    (7, 7, {"reduce": "mean", "strategy": "edge", "deterministic": False}, torch.float32),
    (12, 0, {"reduce": "mean", "strategy": "neighbor_group", "group_size": 5, "own": True}, torch.float32),
]
SLOW = [
    (16, 0, {"reduce": "sum"}, torch.float32),
    (140, 140, {"reduce": "sum", "strategy": "vertex"}, torch.bfloat16),
    (16, 1, {"reduce": "max"}, torch.float16),
    (7, 7, {"own": True}, torch.bfloat16),
    (24, 4, {"own": True, "strategy": "vertex"}, torch.float64),
    (24, 4, {"reduce": "max", "strategy": "vertex"}, torch.float64),
    (300, 1, {"reduce": "mean", "strategy": "neighbor_group", "group_size": 7}, torch.float32),
    (300, 300, {"reduce": "mean", "strategy": "neighbor_group", "group_size": 7}, torch.float32),
    (30, 5, {"reduce": "sum", "strategy": "edge", "deterministic": False, "dimension_workers": 8}, torch.float16),
]


def run_emulated(inputs):
    """Return results and gradients without torch's dispatch, which would take the CPU's operator."""
    with torch.no_grad():
        out = aggregate_cuda.forward(*inputs)
        there = leaves(inputs)
        wanted = [name in there for name in ("x", "edge_weight", "own_weight")]
        found = aggregate_cuda.backward(gradient_of(out), out if inputs.reduce == "max" else None, wanted, *inputs)
    by_name = dict(zip(("x", "edge_weight", "own_weight"), found, strict=True))
    return {"out": out, **{name: by_name[name] for name in there}}


@pytest.mark.parametrize(
    ("channels", "weights", "options", "dtype"), [*CASES, *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW)]
)
def test_against_float64(emulate, channels, weights, options, dtype):
    inputs = random_inputs(channels, weights, num_edges=60, hub=20, dtype=dtype, **options)
    assert worst(run_emulated(inputs), expected_of(inputs)) < BOUNDS[dtype]


@pytest.mark.slow
@pytest.mark.parametrize(("channels", "weights", "options", "dtype"), CASES)
def test_no_races(emulate, channels, weights, options, dtype):
    emulate.find_races = True
    run_emulated(random_inputs(channels, weights, num_edges=60, hub=20, dtype=dtype, **options))


@needs_compiler
@pytest.mark.parametrize(
    ("arch", "reduce", "weights", "dtype", "work"),
    by_turns(
        [
            (0, 0, 0, {}),
            (1, 1, 1, {"ATOMIC": 1}),
            (2, 2, 2, {"TIES": 1}),
            (2, 3, 3, {"BACKWARD": 1, "GRAD_WEIGHT": 1}),
            (0, 3, 0, {"BACKWARD": 1, "GRAD_WEIGHT": 1}),
            (1, 0, 2, {"OWN": 1}),
        ]
    ),
)
def test_compiles(arch, reduce, weights, dtype, work):
    common = {"REDUCE": reduce, "WEIGHTS": weights, "DTYPE": dtype, "LANES": 8, "VEC": 2, "BACKWARD": work.get("BACKWARD", 0)}
    rows = {"EDGES": 2, "ATOMIC": 0, "TIES": 0, "GRAD_WEIGHT": 0, "OWN": 0, **work}
    assert compiles("aggregate_rows.cu", common | rows, arch)
    assert compiles("aggregate_edges.cu", common, arch)


def test_how_many_channels_a_thread_reads():
    assert [vector(columns, torch.float32, 0) for columns in (64, 6, 7)] == [4, 2, 1]
    assert [vector(64, dtype, 0) for dtype in (torch.float64, torch.bfloat16)] == [2, 8]
    assert vector(64, torch.float32, 2) == 2  # heads of two channels
    assert vector(64, torch.float32, 1) == 4
    assert vector(64, torch.float32, 0, 8) == 2  # an address that is not aligned
    assert [lanes_for(columns, 4) for columns in (1, 16, 70, 1000)] == [1, 4, 32, 32]


@pytest.mark.parametrize(
    ("average", "longest", "options", "expected"),
    [
        (2, 9, {}, Plan(16, 1, 256, False)),
        (14, 5000, {}, Plan(16, 2, 256, False)),
        (500, 5000, {}, Plan(16, 2, 1000, False)),
        (14, 5000, {"strategy": "vertex"}, Plan(16, 2, 0, False)),
        (14, 5000, {"strategy": "neighbor_group", "group_size": 14, "deterministic": False}, Plan(16, 2, 14, True)),
        (14, 5000, {"strategy": "neighbor_group", "reduce": "max", "deterministic": False}, Plan(16, 2, 256, False)),
    ],
)
def test_the_plan(average, longest, options, expected):
    empty = torch.empty(0, dtype=torch.int32)
    graph = EdgeGraph(torch.empty(11, dtype=torch.int32), empty.expand(0).new_empty(1).expand(10 * average), empty, 10, longest)
    inputs = AggregateInputs(torch.empty(10, 64), torch.empty(2, 0, dtype=torch.int64), None, None, 10, **options)
    assert plan(inputs, graph, 4) == expected


def test_parts_cover_long_rows_once():
    degrees = torch.tensor([3, 0, 40, 7, 8, 25])
    target = torch.arange(6).repeat_interleave(degrees)
    graph = EdgeGraph.of(torch.stack([torch.zeros_like(target), target]), 1, 6)
    parts = graph.parts(7)
    assert parts is not None
    assert parts.long_row.tolist() == [2, 4, 5]
    covered = list(
        itertools.chain(*(range(b, min(b + 7, int(graph.rowptr[r + 1]))) for r, b in zip(parts.row, parts.begin.tolist(), strict=True)))
    )
    assert covered == [e for r in (2, 4, 5) for e in range(int(graph.rowptr[r]), int(graph.rowptr[r + 1]))]
    assert parts.long_first.tolist() == [0, 6, 8, 12]
    assert graph.parts(40) is None
    assert graph.parts(7) is parts
