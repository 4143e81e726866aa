"""How `molgcn::aggregate` shares the edges of a graph out among a GPU's threads: the strategies and their parameters."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch

from molgcn.ops.aggregate import AggregateInputs
from molgcn.ops.edge_graph import EdgeGraph

GROUP = 256  # edges of a row, or twice as many as it has on average, beyond which it is cut, where nobody says otherwise
_WARP = 32
_LOAD = 16  # bytes, the most that a thread reads at a time
_SIZES = {torch.float32: 4, torch.float64: 8, torch.bfloat16: 2, torch.float16: 2}


class Plan(NamedTuple):
    """Parameters of the kernels by rows.

    Attributes:
        lanes: threads that share an edge's channels.
        edges: edges of a row that are pulled at the same time, each by `lanes` threads.
        part_size: edges of a row beyond which it is cut into parts of so many; 0 for never.
        atomic: the sums of parts are added atomically.
    """

    lanes: int
    edges: int
    part_size: int
    atomic: bool


@cache
def vector(num_columns: int, dtype: torch.dtype, channels_per_weight: int, misaligned: int = 0) -> int:
    """Return how many channels a thread reads at a time: as many as fit in 16 bytes, lie aligned and have, if heads, one weight.

    Args:
        num_columns: D.
        dtype: of the features.
        channels_per_weight: D / K, 0 without weights.
        misaligned: the last four bits of the addresses, all of them in one number.
    """
    most = _LOAD // _SIZES[dtype]
    divided = [num_columns, *([channels_per_weight] if channels_per_weight > 1 else [])]
    while most > 1 and (any(number % most for number in divided) or misaligned % (most * _SIZES[dtype])):
        most //= 2
    return most


def lanes_for(num_columns: int, vec: int, dimension_workers: int = 0) -> int:
    """Return how many threads share an edge's channels: a power of 2, enough for all of them up to a warp."""
    return min(_power_above(dimension_workers or -(-num_columns // vec)), _WARP)


def plan(inputs: AggregateInputs, graph: EdgeGraph, vec: int) -> Plan:
    """Return the parameters for the rows of a graph, or of its edges by source.

    Rows are pulled whole by "vertex", and by "auto" unless one has more than :data:`GROUP` edges and twice the average. Half as many
    edges as a row has on average are pulled at a time, as far as a warp has threads.
    """
    lanes = lanes_for(inputs.x.shape[1], vec, inputs.dimension_workers)
    average = graph.num_edges // max(graph.num_dst, 1)
    edges = min(_power_above(average // 2 + 1) // 2 or 1, _WARP // lanes)
    part_size = 0 if inputs.strategy == "vertex" else inputs.group_size or max(GROUP, 2 * average)
    atomic = inputs.strategy == "neighbor_group" and not inputs.deterministic and inputs.reduce != "max" and _SIZES[inputs.x.dtype] >= 4
    return Plan(lanes, edges, part_size, atomic)


def _power_above(number: int) -> int:
    """Return the least power of 2 that is not below a positive number."""
    return 1 << max(number - 1, 0).bit_length()
