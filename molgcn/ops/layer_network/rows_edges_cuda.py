"""Steps between atoms and directed bonds, and their gradients, by `cuda/rows_edges.cu` and `cuda/rows_gate.cu`."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from molgcn.ops.layer_network.gradient_steps import (
    AddGrad,
    AttendGrad,
    EdgeGrad,
    ExpandGrad,
    FinishGrad,
    GateGrad,
    GradStep,
    Produced,
    SpreadGrad,
)
from molgcn.ops.layer_network.launches_cuda import is_read_later
from molgcn.ops.layer_network.memory import stride_of
from molgcn.ops.layer_network.rows_launches import PAIR_LANES, THREADS, RowLaunches, Teams
from molgcn.ops.layer_network.steps import AverageDirections, EdgeStep, Expand, Finish, Gate, Spread, Step, SumIncoming, SumNonBacktracking

# Sizes of launches; any size computes the same but for the order of a sum. Sums over bonds that continue others are slower with 4.
_BLOCKS = 8  # blocks per multiprocessor
_EXPAND_GRAD_BLOCKS = 4  # as many as run at the same time
_GATE_BLOCKS = 3  # as many of cuda/rows_gate.cu as run at the same time, since each merges and leaves parts of norms
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
        paired = self.run.graph.x.new_empty(self.run.graph.col.shape[0], dtype=torch.int32)
        return self._launches.prepare("rows_pair", "new_paired", paired, Teams(PAIR_LANES, 1), coded=False)

    @cached_property
    def _shares(self) -> Tensor:
        """The rows that the launch of a :class:`GateGrad` step leaves for the next one, of any gate."""
        gates = (step.step for step in self.run.backward.steps if isinstance(step, GateGrad))
        return self.run.graph.x.new_empty(self.run.graph.num_nodes * max(stride_of(self.run.width(gate.out)) for gate in gates))

    def prepare(self) -> None:
        """Find the reverses that a backward pass reads, before the launches that read anything else."""
        pairing = (ExpandGrad, EdgeGrad, GateGrad, SpreadGrad)
        if any(isinstance(step, pairing) or _pairs(step) for step in self.run.backward.steps):
            _ = self.paired

    def expand(self, step: Expand, after: Finish | None) -> None:
        """Compute the value of a step that gives bonds their sources' rows, and of the end of a layer `after` it."""
        it, teams = self._expanded(step)
        if after is None or is_read_later(self.run, step.out):
            it.out = self.run.rows(step.out).address
        if after is not None:
            it.end, it.written = self._launches.ends.forward(after), self.run.rows(after.out).address
        it.signs = self.run.kept_signs(step.out).data_ptr() if step.out in self.run.signs_kept else 0
        self._launch("rows_expand", it, teams, self.run.graph.num_nodes)

    def spread(self, step: Spread) -> None:
        """Compute the value of a step that gives every directed bond its own row."""
        bonds = self.run.rows(step.source)
        it, teams = self._arguments(bonds.width, bonds.stride, bonds=bonds, out=self.run.rows(step.out))
        self._launch("rows_expand", it, teams, self.run.graph.num_nodes)

    def gate(self, step: Gate, expand: Expand | None, leaves: Finish | None) -> None:
        """Compute the average with gates, and before it the gates where a step for them is given, with the moments for their norm."""
        gates = self.run.rows(step.gates)
        if expand is None:
            it, teams = self._arguments(gates.width, gates.stride, bonds=gates)
            it.code = 0
        else:
            it, teams = self._expanded(expand)
            it.written = gates.address
        it.averaged, it.out = self.run.rows(step.source).address, self.run.rows(step.out).address
        self._launch("rows_gate", it, teams, self.run.graph.num_nodes, file="rows_gate.cu", leaves=leaves)

    def _expanded(self, step: Expand) -> tuple[Any, Teams]:
        """Return the arguments for the rows that a step adds for each directed bond."""
        run, source = self.run, self.run.rows(step.source)
        names = ("bonds", "target")
        rows = {name: run.rows(getattr(step, name)) for name in names if getattr(step, name) is not None}
        it, teams = self._arguments(source.width, source.stride, source=source, **rows)
        if step.bonds is not None and run.program.values[step.bonds].rows == "edges":
            it.code = 0
        return it, teams

    def forward(self, step: EdgeStep, before: Finish | None) -> None:
        """Compute the value of a step that reads rows of directed bonds, which the end of a layer may come `before`."""
        source, out = self.run.rows((before or step).source), self.run.rows(step.out)
        it, teams = self._arguments(source.width, source.stride, source=source, out=out)
        it.of_source.out = out.address
        if before is not None:
            it.end, it.ends = self._launches.ends.forward(before), 1
        self._launch(_KERNELS[type(step)], self._with_pairs(step, it), teams, self.run.graph.num_nodes)

    def backward(self, step: EdgeGrad, after: FinishGrad | None) -> None:
        """Compute the gradient of the rows of directed bonds that a step reads, and then that of the end of a layer `after` it."""
        grad, kernel = self.run.gradient(step.grad), _KERNELS[type(step.step)]
        it, teams = self._arguments(grad.width, grad.stride, grad=grad)
        it.of_source = self._launches.gradient((after or step).source)
        if after is not None:
            it.end, it.positive = self._launches.ends.backward(after.step), self.run.signs(after.step.source).data_ptr()
        kernel += "_grad" if isinstance(step.step, SumIncoming) else ""
        self._launch(kernel, self._with_pairs(step.step, it), teams, self.run.graph.num_nodes)

    def _with_pairs(self, step: EdgeStep, it: Any) -> Any:
        if not isinstance(step, SumIncoming):
            it.paired = self.paired.data_ptr()
        return it

    def expand_grad(self, step: ExpandGrad, before: FinishGrad | None, added: AddGrad | None) -> None:
        """Compute the gradients of a step that gives bonds their sources' rows, from those of the end of a layer that comes `before`.

        Args:
            step: The step.
            before: The end of the layer, or None.
            added: The step whose sum is added to the gradient of the end's source, or None if there is no such step or it has a launch.
        """
        launches, grad = self._launches, self.run.gradient(step.grad if before is None else before.grad)
        it, teams = self._arguments(grad.width, grad.stride, grad=grad)
        if before is not None:
            it.end, source = launches.ends.backward(before.step), before.step.source
            if source in self.run.signs_kept:
                it.signs = self.run.kept_signs(source).data_ptr()
            else:
                it.source = self.run.rows(source).address
            adds = [before.source.add] if added is None else [added.grad, added.source.add]
            it.add, it.more = (0 if number is None else self.run.gradient(number).address for number in (*adds, None)[:2])
        it.of_source = launches.gradient(step.source)
        gate = self._gate_of(step)
        if gate is None:
            it.of_target = launches.gradient(step.target)
        elif gate.source is not None:
            self._set_averaged(it, gate)
        self._pull_back(it, teams, step.bonds)

    def spread_grad(self, step: SpreadGrad) -> None:
        """Compute the gradient of the bonds' rows that every directed bond got."""
        grad = self.run.gradient(step.grad)
        it, teams = self._arguments(grad.width, grad.stride, grad=grad)
        self._pull_back(it, teams, step.source)

    def gate_grad(self, step: GateGrad, before: FinishGrad | None) -> None:
        """Compute the gradients of an average with gates, that of the rows perhaps together with the next step.

        To the gradient of the gates is added what comes through the end of a layer that reads them, `before`.
        """
        run, launches, grad, gate = self.run, self._launches, self.run.gradient(step.grad), step.step
        it, teams = self._arguments(grad.width, grad.stride, grad=grad, averaged=run.rows(gate.source), gates=run.rows(gate.gates))
        it.shares, it.of_gates = self._shares.data_ptr(), launches.gradient(step.gates)
        if before is not None:
            it.end, it.add, it.of_gates.add = launches.ends.backward(before.step), run.gradient(before.grad).address, 0
        expand = next((other for other in run.backward.steps if isinstance(other, ExpandGrad) and self._gate_of(other) is step), None)
        if expand is not None:
            it.of_target = launches.gradient(expand.target)
        self._launch("rows_gate_grad", it, teams, run.graph.num_nodes, file="rows_gate.cu", ends=before is not None)
        if expand is None and step.source is not None:
            it, teams = self._arguments(grad.width, grad.stride)
            self._set_averaged(it, step)
            self._pull_back(it, teams, None)

    def _gate_of(self, step: ExpandGrad) -> GateGrad | None:
        """Return the step before if it computes the gradient of this step's value last, so that a launch can compute parts of both."""
        steps = self.run.backward.steps
        before = steps[max(steps.index(step) - 1, 0)]
        return before if isinstance(before, GateGrad) and before.gates is not None and before.gates.out == step.grad else None

    def _set_averaged(self, it: Any, step: GateGrad) -> None:
        """Let a launch compute the gradient of the rows that gates average."""
        it.gates, it.shares = self.run.rows(step.step.gates).address, self._shares.data_ptr()
        it.of_averaged = self._launches.gradient(step.source)

    def _pull_back(self, it: Any, teams: Teams, bonds: Produced | None) -> None:
        """Launch the sums over the bonds that leave an atom, with the gradient of the bonds' rows."""
        run, launches = self.run, self._launches
        it.paired = self.paired.data_ptr()
        if bonds is None or run.graph.code is None or run.graph.num_bond_rows == 0:
            it.of_bonds = launches.gradient(bonds)
            return self._launch("rows_expand_grad", it, teams, run.graph.num_nodes)
        each = 4 * launches.number_bytes
        parts = launches.parts_left(min(teams.parts(run.graph.num_nodes), launches.resident(teams.chunks, _TABLE_BLOCKS)))
        ranges = launches.sum_codes(it, bonds, parts, teams.threads * each)
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

    def _launch(
        self,
        name: str,
        it: Any,
        teams: Teams,
        num_rows: int,
        file: str = "rows_edges.cu",
        *,
        leaves: Finish | None = None,
        ends: bool = False,
    ) -> None:
        """Launch a kernel, which leaves moments for the norm of `leaves` if it is not None, or takes rows through the end of a layer."""
        launches, norms = self._launches, leaves is not None or ends
        blocks = _GATE_BLOCKS if file == "rows_gate.cu" else _EXPAND_GRAD_BLOCKS if name == "rows_expand_grad" else _BLOCKS
        parts = min(teams.parts(num_rows), launches.resident(teams.chunks, blocks))
        parts = launches.leave_part(it, leaves, parts)
        defines = {"TABLE": 0} if file == "rows_edges.cu" else {"LEAVES": int(leaves is not None), "ENDS": int(ends)}
        shared = launches.end_bytes(teams, ends=int(ends)) if norms else 0
        launches.launch(file, name, it, teams.chunks * parts, shared=shared, defines={"THREADS": THREADS, **defines})
        launches.ends.left(leaves)


def _pairs(step: GradStep | Step) -> bool:
    """Return whether attention's gradient reads the reverses: of its bonds' rows, or of their dropout."""
    return isinstance(step, AttendGrad) and (step.step.bonds is not None or step.step.dropout is not None)
