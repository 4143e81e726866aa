"""Launch kernels on rows: their struct of arguments, and how threads and blocks share rows and columns."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from molgcn.cuda_runtime.launch import gpu, kernel
from molgcn.cuda_runtime.structs import Header, fill
from molgcn.ops.layer_network.gradient_steps import Produced
from molgcn.ops.layer_network.layer_ends_cuda import LAYER_END, LayerEnds
from molgcn.ops.layer_network.memory import FEW_ATOMS
from molgcn.ops.layer_network.norm_parts import MOST_PARTS, merge_numbers
from molgcn.ops.layer_network.passes import Pass, Rows
from molgcn.ops.layer_network.program import has_other_activations
from molgcn.ops.layer_network.steps import AGGREGATIONS, Finish
from molgcn.ops.layer_network.workspace import Workspace
from molgcn.ops.part_sums import Sum

THREADS = 256
MOST_LANES = 32
FEW_LANES = 8  # the most lanes in a small batch, where every block merges the parts of a norm's columns
FEW_PARTS = 48  # the most parts that leave multiprocessors idle: teams stay wide, and threads have a row each
PAIR_LANES = 4  # threads that share an atom's bonds to find their reverse
TABLE_BYTES = 64 << 10  # the most shared memory for a block's sums over distinct bonds
_EITHER_WAY = {
    "rows_finish.cu",
    "rows_finish_grad.cu",
    "rows_gather.cu",
    "rows_gather_grad.cu",
    "rows_attend.cu",
    "rows_attend_grad.cu",
}  # kernels that read `backwards`
ROWS = Header(
    "rows_structs.h",
    uses=LAYER_END,
    Gradient=[  # see molgcn.ops.layer_network.gradient_steps.Produced
        ("real*", "out"),  # null if it is not wanted
        ("const real*", "add value"),  # each may be null
        ("double", "scale"),
    ],
    Parameters=[
        ("const int*", "ptr rowptr col code"),  # the Graph; code may be null
        ("const int*", "paired"),  # [bonds]: row in `bonds` of each bond's reverse
        ("const real*", "scale"),  # [atoms]: D^-1/2
        ("int*", "new_paired"),
        ("real*", "new_scale"),
        ("int", "num_graphs num_atoms num_bond_rows num_edges"),  # including padding; num_edges: directed bonds
        ("const int*", "bonds_of"),  # rowptr where the rows are directed bonds, not atoms; or null
        ("int", "backwards"),  # whether the kernel goes from the last row to the first
        ("int", "width stride"),  # the columns of all rows, and the distance between two rows
        ("int", "lanes chunks"),  # the threads side by side on a row, and the blocks side by side; see Team in rows.cuh
        ("const real*", "source bonds add more grad largest target averaged gates"),  # rows; each may be null
        ("real*", "out"),  # rows
        ("real*", "shares"),  # rows: what neighbours get of the gradient of an average
        ("Gradient", "of_source of_bonds of_target of_gates of_averaged"),
        ("const real*", "eps"),  # the gather's eps, or null
        ("const real*", "bias"),  # [width]: a gather's bias, or null
        ("LayerEnd", "end"),  # what the kernel applies
        ("int", "ends"),  # whether a sum over bonds applies it to the rows that it reads
        ("const float*", "positive"),  # the signs that a product has kept, cuda/relu_signs.cuh; or null
        ("unsigned char*", "signs"),  # of rows of edges before a relu, a byte for each four columns; or null
        ("real*", "written"),  # rows: what a gather reads after `end`; or null
        ("LayerEnd", "next"),  # the end whose norm's sums are left in backward
        ("const real*", "next_source"),  # rows: the input of that norm
        ("real*", "left"),  # the parts that are left, see cuda/layer_end.cuh
        ("real*", "pooled"),  # [graphs, width]
        ("int", "pooled_stride"),  # the distance between two rows of `pooled`, and of `grad` in the gradient of the pooling
        ("const uint64*", "seed"),
        ("uint32", "dropout_threshold"),
        ("double", "dropout_scale"),
        ("int", "codes"),  # the number of distinct bonds whose gradients a block sums
        ("real*", "table_parts"),  # [parts, bond rows, stride]: the gradients of distinct bonds that blocks leave
        ("int", "adds"),  # whether blocks add to what they left there before
        ("real*", "sum_parts"),  # [parts, numbers]: other sums that blocks leave, of eps or of a layer norm; or null
    ],
)


class Teams(NamedTuple):
    """How teams of threads share rows; the top of cuda/rows.cuh explains the terms.

    Attributes:
        lanes: The number of threads of a team, which are side by side on the quads of a row.
        chunks: The number of blocks that share the quads of a row.
        threads: The number of threads of a block.
    """

    lanes: int
    chunks: int
    threads: int = THREADS

    @property
    def per_block(self) -> int:
        """The number of teams of a block, each of which works on one row at a time."""
        return self.threads // self.lanes

    def parts(self, num_rows: int, rows_of_team: int = 1) -> int:
        """Return how many blocks share the rows of a chunk, if every team has `rows_of_team` rows."""
        return max(1, -(-num_rows // (self.per_block * rows_of_team)))


def teams_of(stride: int, threads: int = THREADS, most_lanes: int = MOST_LANES) -> Teams:
    """Return the teams for rows of `stride` numbers."""
    quads = max(1, stride // 4)
    chunks = -(-quads // most_lanes)
    return Teams(-(-quads // chunks), chunks, threads)


class RowLaunches:
    """The launches of the row kernels of one pass.

    Args:
        run: The pass.
        workspace: The memory and the sums that kernels share.
        ends: The ends of layers of the pass.
    """

    def __init__(self, run: Pass, workspace: Workspace, ends: LayerEnds) -> None:
        self.run, self._workspace, self.ends = run, workspace, ends
        self._device = run.graph.x.device
        self._gpu = gpu(self._device)
        double = run.graph.x.dtype == torch.float64
        self.number_bytes = 8 if double else 4
        graph, call = run.graph, run.call
        tensors = {"ptr": graph.ptr, "rowptr": graph.rowptr, "col": graph.col, "seed": call.seed}
        tensors |= {} if graph.code is None else {"code": graph.code}
        rate = call.program.dropout
        self._defines = {"DOUBLE": int(double), "DROPOUT": int(rate > 0), "OTHERS": int(has_other_activations(call.program))}
        sizes = {"num_graphs": graph.num_graphs, "num_atoms": graph.num_nodes, "num_bond_rows": graph.num_bond_rows}
        sizes |= {"num_edges": graph.col.shape[0]}
        numbers = {"dropout_threshold": int(rate * 2**32), "dropout_scale": 1 / (1 - rate)}
        self._common = fill(ROWS.ctype()(), {**tensors, **sizes, **numbers})

    def arguments(self, width: int, stride: int, teams: Teams, **rows: Rows | None) -> Any:
        """Return the arguments of a launch on rows of some width.

        Args:
            width: The number of columns.
            stride: The distance between two rows, in numbers.
            teams: How teams share the rows.
            **rows: The rows that the kernel reads or writes, by the names of the fields. None sets a field to null.
        """
        it: Any = type(self._common).from_buffer_copy(self._common)
        it.width, it.stride, it.lanes, it.chunks = width, stride, teams.lanes, teams.chunks
        for name, each in rows.items():
            setattr(it, name, 0 if each is None else each.address)
        return it

    def on_rows_of(self, it: Any, value: int) -> None:
        """Let a kernel that takes each row by itself run on the rows of a value: those of directed bonds, unless they are atoms'."""
        if self.run.program.values[value].rows == "edges":
            it.bonds_of, it.num_atoms = self.run.graph.rowptr.data_ptr(), self.run.graph.col.shape[0]

    def gradient(self, produced: Produced | None) -> ctypes.Structure:
        """Return the arguments of a gradient: where it is written, what is added to it, and its mask."""
        it: Any = ROWS.ctype("Gradient")()
        if produced is not None:
            it.out, it.add = self.run.gradient(produced.out).address, self._address(produced.add)
            if produced.mask is not None:
                it.value, it.scale = self.run.rows(produced.value).address, self.run.mask_scale(produced.mask)
        return it

    def _address(self, gradient: int | None) -> int:
        return 0 if gradient is None else self.run.gradient(gradient).address

    def teams(self, stride: int, threads: int = THREADS) -> Teams:
        """Return the teams for rows of `stride` numbers.

        They are narrow in a small batch of more than `FEW_PARTS` parts, if norms use its statistics.
        """
        wide, num_atoms = teams_of(stride, threads), self.run.graph.num_nodes
        narrow = self.run.call.batch_statistics and num_atoms <= FEW_ATOMS and wide.parts(num_atoms) > FEW_PARTS
        return teams_of(stride, threads, FEW_LANES) if narrow else wide

    def leave_sums(self, num_parts: int, *names: str) -> int:
        """Return the address of memory [num_parts, numbers] in which blocks leave the parts of parameters' gradients, one after another."""
        outs = [self.run.grad_parameters[name] for name in names]
        parts = self._workspace.scratch(num_parts * sum(out.numel() for out in outs) * self.number_bytes)
        self._workspace.sums.add_outs(outs, parts, num_parts, [*map(self.run.adds_gradient, names)])
        return parts

    def leave_rows(self, produced: Produced, num_parts: int) -> tuple[int, bool]:
        """Return where blocks leave the parts of the gradient of all rows of a value, and whether they add to what lies there.

        They do so if that is what the same blocks have left of the gradient that is added to this one.
        """
        rows, sums = self.run.gradient(produced.out), self._workspace.sums
        numbers, add = rows.tensor.numel(), self._address(produced.add)
        before = sums.take(add)
        if before is not None and before.num_parts == num_parts:
            sums.add(before._replace(out=rows.address))
            return before.parts, True
        if before is not None:
            sums.add(before)
            sums.launch()
        parts = self._workspace.scratch(num_parts * numbers * self.number_bytes)
        sums.add(Sum(rows.address, numbers, parts, num_parts, numbers, add))
        return parts, False

    def resident(self, chunks: int, blocks_of_multiprocessor: int) -> int:
        """Return the most parts of a grid that run at the same time with `blocks_of_multiprocessor` blocks per multiprocessor."""
        return max(1, blocks_of_multiprocessor * self._gpu.num_multiprocessors // chunks)

    def parts_left(self, parts: int) -> int:
        """Return how many blocks share the rows of a chunk in a launch that leaves a part for each, if `parts` would."""
        return min(parts, MOST_PARTS) if self.run.graph.num_nodes <= FEW_ATOMS else parts

    def leave_part(self, it: Any, leaves: Finish | None, parts: int, rows: int = 0) -> int:
        """Let each of `parts` blocks leave a part for the norm of `leaves` if it is not None, and return how many blocks there are then.

        Args:
            it: The kernel's arguments.
            leaves: The step whose norm takes the parts.
            parts: The number of blocks that would share the rows.
            rows: See :meth:`.layer_ends_cuda.LayerEnds.room`.
        """
        if leaves is not None:
            parts = self.parts_left(parts)
            it.left = self.ends.room(leaves, parts, rows)
        return parts

    def sum_codes(self, it: Any, bonds: Produced, parts: int, code_bytes: int) -> int:
        """Let blocks leave the gradients of distinct bonds, and return among how many blocks the bonds are divided.

        Args:
            it: The kernel's arguments.
            bonds: The gradient of the bonds' rows.
            parts: The number of blocks that share the atoms.
            code_bytes: The shared memory that the sums of a distinct bond take.
        """
        num_codes = self.run.graph.num_bond_rows
        it.codes = max(1, min(num_codes, TABLE_BYTES // code_bytes))
        it.table_parts, it.adds = self.leave_rows(bonds, parts)
        return -(-num_codes // it.codes)

    def prepare(self, name: str, field: str, out: Tensor, teams: Teams, aggr: str = "sum", *, coded: bool = True) -> Tensor:
        """Return `out`, which a kernel of `cuda/rows_prepare.cu` fills with what other launches read before they wait for it.

        Args:
            name: The name of the kernel.
            field: The argument that `out` is.
            out: Memory for a number of each atom or bond.
            teams: How teams share the atoms.
            aggr: The aggregation.
            coded: Whether the codes of bonds are read.
        """
        it, grid = fill(self.arguments(0, 0, teams), {field: out}), teams.parts(self.run.graph.num_nodes)
        if not coded:
            it.code = 0
        self.launch("rows_prepare.cu", name, it, grid, defines={"AGGR": AGGREGATIONS.index(aggr)}, early=False)
        self._workspace.overlaps = False
        return out

    def end_bytes(self, teams: Teams, ends: int = 1) -> int:
        """Return the shared memory in bytes with which a block takes rows through `ends` ends of layers and leaves a part.

        It holds the columns of the norms, and then what merges parts, or a record for each of its threads' columns.
        """
        columns = 4 * teams.lanes
        return self.number_bytes * (6 * columns * ends + max(merge_numbers(teams.threads, columns), 3 * 4 * teams.threads))

    def launch(
        self,
        file: str,
        name: str,
        it: Any,
        grid: int,
        *,
        block: int = THREADS,
        shared: int = 0,
        defines: Mapping[str, int] | None = None,
        early: bool = True,
    ) -> None:
        """Launch a kernel of `cuda/<file>`, if the grid has any blocks.

        Args:
            file: The file of the kernel.
            name: The name of the kernel.
            it: The kernel's arguments.
            grid: The number of blocks.
            block: The number of threads of a block.
            shared: The shared memory of a block in bytes.
            defines: The kernel's macros besides those of the pass.
            early: Whether the kernel may read what the previous launch has prepared before it waits for that launch.
        """
        if grid <= 0:
            return
        it.backwards = self._workspace.next_backwards(it.num_atoms, either_way=file in _EITHER_WAY)
        function = kernel(file, name, {**self._defines, **(defines or {})}, self._device)
        function.launch(grid, block, shared, it, overlap=self._workspace.overlaps or not early)
        self._workspace.overlaps = True
