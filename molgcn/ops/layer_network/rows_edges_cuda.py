"""Steps between atoms and directed bonds, and their gradients, by `cuda/rows_edges.cu`."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from molgcn.cuda_runtime.structs import fill
from molgcn.ops.layer_network.backward import AddGrad, AttendGrad, EdgeGrad, ExpandGrad, FinishGrad, GradStep
from molgcn.ops.layer_network.launches_cuda import is_read_later
from molgcn.ops.layer_network.rows_launches import PAIR_LANES, TABLE_BYTES, THREADS, RowLaunches, Teams
from molgcn.ops.layer_network.steps import AverageDirections, EdgeStep, Expand, Finish, Step, SumIncoming, SumNonBacktracking

# Sizes of launches, which no GPU has been asked about yet; any size computes the same but for the order of a sum.
_BLOCKS = 8  # blocks per multiprocessor
_TABLE_BLOCKS = 4  # blocks per multiprocessor that sum over distinct bonds

_KERNELS = {
    SumIncoming: "rows_sum_incoming",
    SumNonBacktracking: "rows_sum_non_backtracking",
    AverageDirections: "rows_average_directions",
}


class EdgeLaunches:
    """The kernels of the steps between atoms and directed bonds of a pass.

    Args:
        launches: The launches of the pass.
    """

    def __init__(self, launches: RowLaunches) -> None:
        self._launches, self.run = launches, launches.run

    @cached_property
    def paired(self) -> Tensor:
        """The position of every bond's reverse [E]."""
        graph, teams = self.run.graph, Teams(PAIR_LANES, 1)
        paired = graph.x.new_empty(graph.col.shape[0], dtype=torch.int32)
        it = fill(self._launches.arguments(0, 0, teams), {"new_paired": paired})
        it.code = 0  # positions, not codes
        self._launches.launch("rows_prepare.cu", "rows_pair", it, teams.parts(graph.num_nodes), defines={"AGGR": 0}, early=False)
        self._launches.wait()
        return paired

    def prepare(self) -> None:
        """Find the reverses that a backward pass reads, before the launches that read anything else."""
        if any(isinstance(step, ExpandGrad | EdgeGrad) or _pairs(step) for step in self.run.backward.steps):
            _ = self.paired

    def expand(self, step: Expand, after: Finish | None) -> None:
        """Compute the value of a step that gives bonds their sources' rows, and of the end of a layer `after` it."""
        run, source = self.run, self.run.rows(step.source)
        bonds = None if step.bonds is None else run.rows(step.bonds)
        out = run.rows(step.out) if after is None or is_read_later(run, step.out) else None
        it, teams = self._arguments(source.width, source.stride, source=source, out=out, bonds=bonds)
        if after is not None:
            it.end, it.written = self._launches.ends.forward(after), run.rows(after.out).address
        self._launch("rows_expand", it, teams, run.graph.num_nodes)

    def forward(self, step: EdgeStep) -> None:
        """Compute the value of a step that reads rows of directed bonds."""
        source, out = self.run.rows(step.source), self.run.rows(step.out)
        it, teams = self._arguments(source.width, source.stride, source=source, out=out)
        it.of_source.out = out.address
        self._launch(_KERNELS[type(step)], self._with_pairs(step, it), teams, self.run.graph.num_nodes)

    def backward(self, step: EdgeGrad) -> None:
        """Compute the gradient of the rows of directed bonds that a step reads."""
        grad, kernel = self.run.gradient(step.grad), _KERNELS[type(step.step)]
        it, teams = self._arguments(grad.width, grad.stride, grad=grad)
        it.of_source = self._launches.gradient(step.source)
        kernel += "_grad" if isinstance(step.step, SumIncoming) else ""
        self._launch(kernel, self._with_pairs(step.step, it), teams, self.run.graph.num_nodes)

    def _with_pairs(self, step: EdgeStep, it: Any) -> Any:
        if not isinstance(step, SumIncoming):
            it.paired = self.paired.data_ptr()
        return it

    def expand_grad(self, step: ExpandGrad, before: FinishGrad | None) -> None:
        """Compute the gradients of a step that gives bonds their sources' rows, from those of the end of a layer that comes `before`."""
        run, launches, grad = self.run, self._launches, self.run.gradient(step.grad if before is None else before.grad)
        paired = self.paired.data_ptr()
        it, teams = self._arguments(grad.width, grad.stride, grad=grad)
        if before is not None:
            it.end, it.source = launches.ends.backward(before.step), run.rows(before.step.source).address
            it.add = 0 if before.source.add is None else run.gradient(before.source.add).address
        it.paired = paired
        it.of_source = launches.gradient(step.source)
        table = step.bonds is not None and run.graph.code is not None and run.graph.num_bond_rows > 0
        if not table or step.bonds is None:
            it.of_bonds = launches.gradient(step.bonds)
            return self._launch("rows_expand_grad", it, teams, run.graph.num_nodes)
        each = 4 * launches.number_bytes
        it.codes = min(run.graph.num_bond_rows, TABLE_BYTES // (teams.threads * each))
        ranges = -(-run.graph.num_bond_rows // it.codes)
        parts = launches.parts_left(min(teams.parts(run.graph.num_nodes), launches.resident(teams.chunks, _TABLE_BLOCKS)))
        it.table_parts, it.adds = launches.leave_rows(step.bonds, parts)
        shared, defines = (teams.threads * it.codes + 6 * teams.lanes) * each, {"THREADS": THREADS, "TABLE": 1}
        launches.launch("rows_edges.cu", "rows_expand_grad", it, parts * teams.chunks * ranges, shared=shared, defines=defines)

    def add_grad(self, step: AddGrad) -> None:
        """Add a gradient to an earlier one."""
        grad = self.run.gradient(step.grad)
        it, teams = self._arguments(grad.width, grad.stride, grad=grad)
        self._launches.on_rows_of(it, step.source.value)
        it.of_source = self._launches.gradient(step.source)
        self._launch("rows_add_grad", it, teams, it.num_atoms)

    def _arguments(self, width: int, stride: int, **rows: Any) -> tuple[Any, Teams]:
        teams = self._launches.teams(stride)
        return self._launches.arguments(width, stride, teams, **rows), teams

    def _launch(self, name: str, it: Any, teams: Teams, num_rows: int) -> None:
        parts = min(teams.parts(num_rows), self._launches.resident(teams.chunks, _BLOCKS))
        self._launches.launch("rows_edges.cu", name, it, teams.chunks * parts, defines={"THREADS": THREADS, "TABLE": 0})


def _pairs(step: GradStep | Step) -> bool:
    """Return whether attention's gradient reads the reverses: of its bonds' rows, or of their dropout."""
    return isinstance(step, AttendGrad) and (step.step.bonds is not None or step.step.dropout is not None)
