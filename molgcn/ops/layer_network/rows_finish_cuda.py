"""The ends of layers (norm, relu, dropout, residual) and their gradients, by `cuda/rows_finish*.cu` and `cuda/rows_layer_norm.cu`."""

from __future__ import annotations

from typing import Any

from molgcn.ops.layer_network.gradient_steps import FinishGrad
from molgcn.ops.layer_network.launches_cuda import uses_batch
from molgcn.ops.layer_network.rows_launches import FEW_PARTS, RowLaunches, Teams
from molgcn.ops.layer_network.rows_warp_teams import warp_team_blocks, warp_team_macros, warp_teams
from molgcn.ops.layer_network.steps import Finish

_WARP_TEAM_THREADS = 512  # threads of a block that sums columns and reads whole rows
_WARP_TEAM_BLOCKS = 2  # such blocks per multiprocessor
_WARP_TEAM_BYTES = 96 << 10  # the most shared memory for the sums of such a block
_ROWS = 2  # the fewest rows of a thread in a grid of more than FEW_PARTS parts
_BLOCKS = 3  # the most blocks per multiprocessor: as many as run at the same time


class FinishLaunches:
    """The kernels of the ends of layers of a pass.

    Args:
        launches: The launches of the pass.
    """

    def __init__(self, launches: RowLaunches) -> None:
        self._launches, self._ends, self.run = launches, launches.ends, launches.run

    def forward(self, step: Finish, leaves: Finish | None) -> None:
        """Compute a step's value, and leave the moments for the norm of `leaves`."""
        run, source = self.run, self.run.rows(step.source)
        rows = {"source": source, "out": run.rows(step.out), "add": None if step.add is None else run.rows(step.add)}
        if self._kind(step) == "layer":
            teams = warp_teams(source.stride)
        else:
            self.leave_moments(step)
            teams = self._launches.teams(source.stride)
        it = self._launches.arguments(source.width, source.stride, teams, **rows)
        it.end = self._ends.forward(step)
        self._launches.on_rows_of(it, step.source)
        if self._kind(step) != "layer":
            return self._launch("rows_finish.cu", "rows_finish", it, teams, leaves)
        grid, defines = warp_team_blocks(it.num_atoms, teams), warp_team_macros(source.stride)
        self._launches.launch("rows_layer_norm.cu", "rows_layer_norm", it, grid, defines=defines)

    def leave_moments(self, step: Finish) -> None:
        """Leave the moments for the norm of a step, unless it needs none or an earlier launch has left them."""
        if not uses_batch(step, self.run) or self.run.is_backward or self._ends.has_parts(step):
            return
        source = self.run.rows(step.source)
        teams = self._launches.teams(source.stride)
        it = self._launches.arguments(source.width, source.stride, teams, source=source)
        self._launches.on_rows_of(it, step.source)
        self._launch("rows_finish.cu", "rows_moments", it, teams, step)

    def backward(self, step: FinishGrad, leaves: FinishGrad | None) -> None:
        """Compute the gradients of a step's source and of its norm's weight and bias, and leave the sums for the norm of `leaves`."""
        forward = step.step
        if self._kind(forward) == "layer":
            return self._layer_norm_grad(step)
        self.leave_sums(step)
        it, teams = self._grad_arguments(step)
        it.of_source = self._launches.gradient(step.source)
        if leaves is not None:
            it.next, it.next_source = self._ends.backward(leaves.step), self.run.rows(leaves.step.source).address
        self._launch("rows_finish_grad.cu", "rows_finish_grad", it, teams, None if leaves is None else leaves.step)

    def leave_sums(self, step: FinishGrad) -> None:
        """Leave the sums for the norm of a step, unless it has none or the launch before has left them."""
        if step.step.norm is None or self._ends.has_parts(step.step):
            return
        it, teams = self._grad_arguments(step)
        it.next = it.end
        self._launch("rows_finish_grad.cu", "rows_grad_sums", it, teams, step.step)

    def _grad_arguments(self, step: FinishGrad) -> tuple[Any, Teams]:
        source = self.run.rows(step.step.source)
        teams = self._launches.teams(source.stride)
        it = self._launches.arguments(source.width, source.stride, teams, source=source, grad=self.run.gradient(step.grad))
        it.end = self._ends.backward(step.step)
        self._launches.on_rows_of(it, step.step.source)
        return it, teams

    def _launch(self, file: str, name: str, it: Any, teams: Teams, leaves: Finish | None) -> None:
        """Launch a kernel, which leaves parts for the norm of a step if it is not None."""
        rows = 1 if teams.parts(it.num_atoms) <= FEW_PARTS else _ROWS
        parts = min(teams.parts(it.num_atoms, rows), self._launches.resident(teams.chunks, _BLOCKS))
        parts = self._launches.leave_part(it, leaves, parts, teams.per_block)
        defines, shared = {"LEAVES": int(leaves is not None)}, self._launches.end_bytes(teams, ends=2)
        self._launches.launch(file, name, it, teams.chunks * parts, shared=shared, defines=defines)
        self._ends.left(leaves)

    def _layer_norm_grad(self, step: FinishGrad) -> None:
        source = self.run.rows(step.step.source)
        threads, numbers = _WARP_TEAM_THREADS, 2 * source.stride * self._launches.number_bytes
        while threads > 32 and threads // 32 * numbers > _WARP_TEAM_BYTES:
            threads //= 2
        teams = warp_teams(source.stride, threads)
        it = self._launches.arguments(source.width, source.stride, teams, source=source, grad=self.run.gradient(step.grad))
        it.end, it.of_source = self._ends.backward(step.step), self._launches.gradient(step.source)
        self._launches.on_rows_of(it, step.step.source)
        grid = min(warp_team_blocks(it.num_atoms, teams), self._launches.resident(1, _WARP_TEAM_BLOCKS))
        it.sum_parts = self._launches.leave_sums(grid, *(f"{step.step.norm}.{name}" for name in ("weight", "bias")))
        defines, shared = warp_team_macros(source.stride), teams.per_block * numbers
        self._launches.launch("rows_layer_norm.cu", "rows_layer_norm_grad", it, grid, block=threads, shared=shared, defines=defines)

    def _kind(self, step: Finish) -> str | None:
        return None if step.norm is None else self.run.program.norms[step.norm]
