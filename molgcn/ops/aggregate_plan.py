"""How `molgcn::aggregate` divides the edges of a graph among a GPU's threads: the strategies and their parameters."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import torch

from molgcn.ops.aggregate import AggregateInputs
from molgcn.ops.edge_graph import EdgeGraph

GROUP = 256  # by default a row is cut if it has more edges than this and more than twice the average
_WARP = 32
_LOAD = 16  # the most bytes that a thread reads at a time
_SIZES = {torch.float32: 4, torch.float64: 8, torch.bfloat16: 2, torch.float16: 2}


class Plan(NamedTuple):
    """The parameters of the kernels that go through the edges row by row.

    Attributes:
        lanes: The number of threads that share an edge's channels.
        edges: The number of edges of a row that are read at the same time, each by `lanes` threads.
        part_size: The most edges of a part. Rows with more edges are cut into such parts; 0 means that no row is cut.
        atomic: Whether the sums of parts are added atomically.
    """

    lanes: int
    edges: int
    part_size: int
    atomic: bool


@cache
def vector(num_columns: int, dtype: torch.dtype, channels_per_weight: int, misaligned: int = 0) -> int:
    """Return how many channels a thread reads at a time: at most 16 bytes, aligned, and within one head where weights are per head.

    Args:
        num_columns: The number of channels, D.
        dtype: The dtype of the features.
        channels_per_weight: The number of channels that share a weight, D / K; 0 without weights.
        misaligned: The last four bits of all tensors' addresses, combined by bitwise or.
    """
    most = _LOAD // _SIZES[dtype]
    divided = [num_columns, *([channels_per_weight] if channels_per_weight > 1 else [])]
    while most > 1 and (any(number % most for number in divided) or misaligned % (most * _SIZES[dtype])):
        most //= 2
    return most


def lanes_for(num_columns: int, vec: int, dimension_workers: int = 0) -> int:
    """Return how many threads share an edge's channels: a power of 2, enough for all channels but at most a warp."""
    return min(_power_above(dimension_workers or -(-num_columns // vec)), _WARP)


def plan(inputs: AggregateInputs, graph: EdgeGraph, vec: int) -> Plan:
    """Return the kernels' parameters for the rows of a graph.

    "vertex" never cuts a row. "auto" cuts rows with more than :data:`GROUP` edges that also have more than twice the average. About half
    of an average row's edges are read at a time, as far as a warp has threads.
    """
    lanes = lanes_for(inputs.x.shape[1], vec, inputs.dimension_workers)
    average = graph.num_edges // max(graph.num_dst, 1)
    edges = min(_power_above(average // 2 + 1) // 2 or 1, _WARP // lanes)
    part_size = 0 if inputs.strategy == "vertex" else inputs.group_size or max(GROUP, 2 * average)
    atomic = inputs.strategy == "neighbor_group" and not inputs.deterministic and inputs.reduce != "max" and _SIZES[inputs.x.dtype] >= 4
    return Plan(lanes, edges, part_size, atomic)


def _power_above(number: int) -> int:
    """Return the smallest power of 2 that is at least a positive number."""
    return 1 << max(number - 1, 0).bit_length()
