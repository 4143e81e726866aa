"""How CUDA kernels go through the rows of a graph: `cuda/row_walk.cuh` and `cuda/join_rows.cu`."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from molgcn.cuda_runtime.kernel import Kernel
from molgcn.cuda_runtime.launch import gpu, kernel
from molgcn.cuda_runtime.structs import Header, fill
from molgcn.ops.edge_graph import EdgeGraph

THREADS = 256
_PIECE = 128  # the most edges of a row that one group of lanes takes
_VECTOR_BYTES = 16
WALK_HEADER = Header(
    "row_walk_structs.h",
    Order=[
        ("const int*", "rowptr col edge"),
        ("const int*", "piece_row piece_begin long_row long_first"),  # the result of EdgeGraph.parts
        ("int", "num_rows num_pieces num_long"),
    ],
)
_JOIN_HEADER = Header(
    "join_rows_structs.h",
    Parameters=[
        ("const int*", "long_row long_first"),
        ("const real*", "partial"),  # [pieces, partial_stride]
        ("real*", "joined"),  # [rows, joined_stride]
        ("int", "num_long partial_stride joined_stride columns"),
    ],
)


@dataclass(frozen=True)
class RowLayout:
    """How the channels and heads of a row are divided among lanes.

    Attributes:
        macros: The macros of the kernels.
    """

    macros: dict[str, int]

    @classmethod
    def of(cls, dtype: torch.dtype, heads: int, channels: int, multiples: list[int], lane_columns: int = 0) -> RowLayout:
        """Return the layout for rows of some shape.

        Args:
            dtype: float32 or float64.
            heads: The number of heads of a row.
            channels: The number of channels of a head.
            multiples: Offsets and strides of rows, in numbers. The length of vectors divides all of them.
            lane_columns: The most columns that a lane takes to have more heads in a warp; 0 for a single vector.
        """
        vector = _VECTOR_BYTES // dtype.itemsize
        while any(number % vector for number in (channels, *multiples)):
            vector //= 2
        lanes = min(32, _power_of_two(-(-channels // vector)))
        while lanes > 1 and lanes * heads > 32 and -(-channels // (vector * lanes // 2)) * vector <= lane_columns:
            lanes //= 2
        repeats, group_heads = -(-channels // (vector * lanes)), min(32 // lanes, _power_of_two(heads))
        sizes = {"HEADS": heads, "CHANNELS": channels, "VECTOR": vector, "LANES": lanes, "REPEATS": repeats, "GROUP_HEADS": group_heads}
        return cls({"DOUBLE": int(dtype == torch.float64), "PIECE": _PIECE, **sizes})

    @property
    def groups(self) -> int:
        """The number of rows that a block goes through at a time."""
        return THREADS // (self.macros["LANES"] * self.macros["GROUP_HEADS"])

    @property
    def lane_columns(self) -> int:
        """The number of columns that a lane has."""
        return self.macros["VECTOR"] * self.macros["REPEATS"]

    @property
    def head_blocks(self) -> int:
        """The number of blocks that a row needs for all of its heads."""
        return -(-self.macros["HEADS"] // self.macros["GROUP_HEADS"])

    def blocks(self, rows: int, device: torch.device, most: int = 64) -> int:
        """Return the number of blocks for `rows` rows. For each block of heads there are at most `most` per multiprocessor."""
        return self.head_blocks * max(1, min(-(-rows // self.groups), most * gpu(device).num_multiprocessors))


class Prepared(NamedTuple):
    """A kernel that goes through a graph's rows, with all of its arguments except the tensors of a call.

    Attributes:
        kernel: The kernel.
        blocks: The number of blocks in its grid.
        arguments: Its parameters except the tensors of a call.
        pieces: The number of pieces that the graph's long rows are cut into.
    """

    kernel: Kernel
    blocks: int
    arguments: ctypes.Structure
    pieces: int

    def launch(self, tensors: dict[str, Tensor]) -> None:
        """Launch the kernel on tensors, given by the names of its parameters."""
        self.kernel.launch(self.blocks, THREADS, 0, fill(type(self.arguments).from_buffer_copy(self.arguments), tensors))


def walk(order: ctypes.Structure, graph: EdgeGraph) -> int:
    """Set the rows that a kernel goes through, and return how many pieces the long rows are cut into."""
    fill(order, {"rowptr": graph.rowptr, "col": graph.col, "edge": graph.edge, "num_rows": graph.num_dst, "num_pieces": 0, "num_long": 0})
    parts = graph.parts(_PIECE)
    if parts is None:
        return 0
    num_pieces, num_long = parts.row.shape[0], parts.long_row.shape[0]
    of_parts = {"piece_row": parts.row, "piece_begin": parts.begin, "long_row": parts.long_row, "long_first": parts.long_first}
    fill(order, {**of_parts, "num_pieces": num_pieces, "num_long": num_long})
    return num_pieces


def join(graph: EdgeGraph, partial: Tensor, to: Tensor, columns: int) -> None:
    """Add up the sums of the pieces of long rows.

    Args:
        graph: The graph.
        partial: The sums of the pieces [pieces, at least `columns`].
        to: The tensor that the long rows' sums are written to. Its rows are those of the graph.
        columns: The number of columns to add up.
    """
    parts = graph.parts(_PIECE)
    if parts is None:
        return
    num_long = parts.long_row.shape[0]
    parameters = _JOIN_HEADER.ctype()(num_long=num_long, partial_stride=partial.shape[1], joined_stride=to.stride(0), columns=columns)
    fill(parameters, {"long_row": parts.long_row, "long_first": parts.long_first, "partial": partial, "joined": to})
    blocks = max(1, min(-(-num_long * columns // THREADS), 8 * gpu(to.device).num_multiprocessors))
    kernel("join_rows.cu", "join_rows", {"DOUBLE": int(to.dtype == torch.float64)}, to.device).launch(blocks, THREADS, 0, parameters)


def _power_of_two(number: int) -> int:
    return 1 << (number - 1).bit_length()
