"""Attention to the neighbours, and its gradients, by `cuda/rows_attend*.cu`."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from torch import Tensor

from molgcn.cuda_runtime.structs import Header, fill
from molgcn.ops.layer_network.gradient_steps import AttendGrad
from molgcn.ops.layer_network.norm_parts import part_columns
from molgcn.ops.layer_network.rows_edges_cuda import EdgeLaunches
from molgcn.ops.layer_network.rows_launches import ROWS, RowLaunches
from molgcn.ops.layer_network.steps import Attend, Finish
from molgcn.ops.row_walk import THREADS, RowLayout

# Sizes of launches, which no GPU has been asked about yet; any size computes the same but for the order of a sum.
_BLOCKS = 16  # blocks per multiprocessor
_SUMMING_BLOCKS = 3  # those that leave sums: as many as run at the same time
_LANE_COLUMNS = 8  # the most columns of a lane: a warp then has all heads of a row, and reads the bonds once

_HEADER = Header(
    "rows_attend_structs.h",
    uses=ROWS,
    Attention=[
        ("const int*", "ptr rowptr col code"),  # the Graph; code may be null
        ("const int*", "paired"),  # [bonds]: the position of each bond's reverse
        ("int", "num_graphs num_atoms num_bond_rows"),  # including padding
        ("int", "backwards"),  # whether the kernel goes from the last row to the first
        ("int", "stride result_stride softmax_stride"),  # between rows of source, target and bonds; of the result; of the softmax
        ("const real*", "source target bonds"),  # rows; the last two may be null
        ("const real*", "att att_target att_bonds"),  # [HEADS, CHANNELS]; the last two may be null
        ("const real*", "bias"),  # [columns of the result], or null
        ("real*", "left"),  # [parts, part_numbers(columns of the result)]: the moments of the result that blocks leave
        ("int", "left_half"),  # the columns of a part
        ("real*", "out softmax"),  # rows; softmax [2 HEADS]: largest score, reciprocal of the sum
        ("const real*", "grad"),  # rows of the result
        ("real*", "nodes of_targets"),  # [atoms, HEADS, 4]: Node; [atoms, HEADS]: the gradients of GAT's att_target . source
        ("Gradient", "of_source of_target of_bonds"),
        ("int", "codes"),  # the number of distinct bonds whose gradients a block sums
        ("real*", "table_parts"),  # [parts, bond rows, stride]: the gradients of distinct bonds that blocks leave
        ("int", "adds"),  # whether blocks add to what they left there before
        ("real*", "sum_parts"),  # [parts, vectors]: the gradients of vectors that blocks leave
        ("const uint64*", "seed"),
        ("uint32", "threshold site"),  # of dropout
        ("double", "negative_slope kept_scale"),
    ],
)


class AttendLaunches:
    """The kernels of the steps of a pass that attend.

    Args:
        launches: The launches of the pass.
        edges: The kernels that find the reverses of bonds.
    """

    def __init__(self, launches: RowLaunches, edges: EdgeLaunches) -> None:
        self._launches, self._edges, self.run = launches, edges, launches.run

    def forward(self, step: Attend, leaves: Finish | None) -> None:
        """Compute a step's value and its softmax, and leave the moments for the norm of `leaves`."""
        it, layout = self._arguments(step)
        out = self.run.rows(step.out)
        it.out, it.result_stride, it.bias = out.address, out.stride, self._parameter(step.bias)
        blocks = layout.head_blocks if step.concat else 1
        defines, ends = {"LEAVES": int(leaves is not None)}, self._launches.ends
        if leaves is None:
            grid = blocks * self._parts(layout, blocks, _BLOCKS)
            return self._launch("rows_attend.cu", "rows_attend", it, step, layout, grid, defines=defines)
        parts = self._launches.parts_left(self._parts(layout, blocks, _SUMMING_BLOCKS))
        it.left, it.left_half = ends.room(leaves, parts), part_columns(out.width)
        shared = THREADS * layout.lane_columns * self._launches.number_bytes + 4 * layout.groups
        self._launch("rows_attend.cu", "rows_attend", it, step, layout, blocks * parts, shared=shared, defines=defines)
        ends.left(leaves)

    def backward(self, step: AttendGrad) -> None:
        """Compute the gradients of a step's source, target, bonds and vectors."""
        run, launches, forward = self.run, self._launches, step.step
        it, layout = self._arguments(forward)
        grad, atoms = run.gradient(step.grad), run.graph.num_nodes * forward.heads
        it.grad, it.result_stride = grad.address, grad.stride
        it.nodes, it.of_targets = self._nodes.data_ptr(), self._nodes[4 * atoms :].data_ptr()
        it.of_source, it.of_target = launches.gradient(step.source), launches.gradient(step.target)
        if forward.dropout is not None or forward.bonds is not None:
            it.paired = self._edges.paired.data_ptr()
        columns = THREADS * layout.lane_columns * launches.number_bytes
        ranges, shared = 1, columns
        parts = launches.parts_left(self._parts(layout, layout.head_blocks, _SUMMING_BLOCKS))
        table = step.bonds is not None and run.graph.code is not None and run.graph.num_bond_rows > 0
        if table and step.bonds is not None:
            ranges = launches.sum_codes(it, step.bonds, parts, columns)
            shared = columns * it.codes
        else:
            it.of_bonds = launches.gradient(step.bonds)
        if (name := forward.att if forward.target is not None else forward.att_bonds) is not None:
            it.sum_parts = launches.leave_sums(parts, name)
        grid, defines = parts * layout.head_blocks, {"TABLE": int(table)}
        self._launch("rows_attend_grad.cu", "rows_attend_targets", it, forward, layout, grid * ranges, shared=shared, defines=defines)
        if forward.att_target is not None:
            it.sum_parts = launches.leave_sums(parts, forward.att, forward.att_target)
        self._launch("rows_attend_grad.cu", "rows_attend_sources", it, forward, layout, grid, shared=columns, defines=defines)

    @cached_property
    def _nodes(self) -> Tensor:
        """Memory for what the pull of the sources reads of the targets, which all layers share: five numbers for each atom and head."""
        heads = max(step.heads for step in self.run.program.steps if isinstance(step, Attend))
        return self.run.graph.x.new_empty(5 * heads * self.run.graph.num_nodes)

    def _arguments(self, step: Attend) -> tuple[Any, RowLayout]:
        """Return what the launches of a step have in common, and how a row is divided among lanes."""
        run, graph = self.run, self.run.graph
        source = run.rows(step.source)
        tensors = {"ptr": graph.ptr, "rowptr": graph.rowptr, "col": graph.col, "seed": run.call.seed}
        tensors |= {} if graph.code is None else {"code": graph.code}
        softmax = run.rows(step.softmax)
        numbers = {"num_graphs": graph.num_graphs, "num_atoms": graph.num_nodes, "num_bond_rows": graph.num_bond_rows}
        numbers |= {"stride": source.stride, "softmax_stride": softmax.stride}
        it: Any = fill(_HEADER.ctype("Attention")(), {**tensors, **numbers})
        it.source, it.softmax = source.address, softmax.address
        it.target = 0 if step.target is None else run.rows(step.target).address
        it.bonds = 0 if step.bonds is None else run.rows(step.bonds).address
        it.att, it.att_target, it.att_bonds = (self._parameter(name) for name in (step.att, step.att_target, step.att_bonds))
        it.negative_slope, it.kept_scale = step.slope, 1 / (1 - step.rate)
        it.threshold, it.site = int(step.rate * 2**32), step.dropout or 0
        return it, RowLayout.of(graph.x.dtype, step.heads, source.width // step.heads, [], _LANE_COLUMNS)

    def _parameter(self, name: str | None) -> int:
        return 0 if name is None else self.run.parameter(name).data_ptr()

    def _parts(self, layout: RowLayout, head_blocks: int, blocks_of_multiprocessor: int) -> int:
        """Return how many blocks share the atoms, where each has one of `head_blocks` blocks of heads."""
        parts = max(1, -(-self.run.graph.num_nodes // layout.groups))
        return min(parts, self._launches.resident(head_blocks, blocks_of_multiprocessor))

    def _launch(
        self, file: str, name: str, it: Any, step: Attend, layout: RowLayout, grid: int, *, shared: int = 0, defines: Mapping[str, int]
    ) -> None:
        options = {"V2": step.target is not None, "BONDS": step.bonds is not None, "CONCAT": step.concat, "DROPPED": step.rate > 0}
        every = {**layout.macros, **{option: int(chosen) for option, chosen in options.items()}, **defines}
        self._launches.launch(file, name, it, grid, block=THREADS, shared=shared, defines=every)
