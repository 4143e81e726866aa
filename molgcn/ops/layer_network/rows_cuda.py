"""The steps of a pass that are not matrix products, by the kernels of `cuda/rows_*.cu`."""

from __future__ import annotations

from torch import Tensor

from molgcn.ops.layer_network.gradient_steps import (
    AddGrad,
    AttendGrad,
    EdgeGrad,
    ExpandGrad,
    FinishGrad,
    GateGrad,
    GatherGrad,
    NormalizeGrad,
    PoolGrad,
    SpreadGrad,
)
from molgcn.ops.layer_network.launches_cuda import Launch
from molgcn.ops.layer_network.layer_ends_cuda import LayerEnds
from molgcn.ops.layer_network.passes import Pass
from molgcn.ops.layer_network.rows_attend_cuda import AttendLaunches
from molgcn.ops.layer_network.rows_edges_cuda import EdgeLaunches
from molgcn.ops.layer_network.rows_finish_cuda import FinishLaunches
from molgcn.ops.layer_network.rows_gather_cuda import GatherLaunches
from molgcn.ops.layer_network.rows_launches import RowLaunches
from molgcn.ops.layer_network.rows_pool_cuda import PoolLaunches
from molgcn.ops.layer_network.steps import Attend, EdgeStep, Expand, Finish, Gate, Gather, Normalize, Spread
from molgcn.ops.layer_network.workspace import Workspace


class RowKernels:
    """The kernels of a pass that work on rows.

    Args:
        run: The pass.
        workspace: The memory and the sums that kernels share.
        ends: The ends of layers of the pass.
    """

    def __init__(self, run: Pass, workspace: Workspace, ends: LayerEnds) -> None:
        launches = RowLaunches(run, workspace, ends)
        self._gather = GatherLaunches(launches)
        self._edges = EdgeLaunches(launches)
        self._attend = AttendLaunches(launches, self._edges)
        self._finish = FinishLaunches(launches)
        self._pool = PoolLaunches(launches)

    def prepare(self) -> None:
        """Compute what the kernels of a backward pass read of the bonds, as its first launches."""
        self._gather.prepare()
        self._edges.prepare()

    def gather(self, step: Gather, launch: Launch) -> None:
        """Compute the value of a gather, with the end of a layer that its launch includes."""
        self._gather.forward(step, launch)

    def gather_grad(self, step: GatherGrad, leaves: FinishGrad | None) -> None:
        """Compute the gradients of a gather's source, bonds and eps, and leave the sums for the norm of `leaves`."""
        self._gather.backward(step, leaves)

    def edges(self, launch: Launch) -> None:
        """Compute the value of a step that reads or computes rows of directed bonds, or those of two such steps."""
        step = launch.step
        if isinstance(step, Gate):
            self._edges.gate(step, launch.expand, launch.leaves)
        elif isinstance(step, Spread):
            self._edges.spread(step)
        elif isinstance(step, Expand):
            self._edges.expand(step, launch.after)
        elif isinstance(step, EdgeStep):
            self._edges.forward(step)

    def edges_grad(self, step: ExpandGrad | SpreadGrad | EdgeGrad | GateGrad, before: FinishGrad | None) -> None:
        """Compute the gradients of a step that reads or computes rows of directed bonds, from those of a layer's end `before` it."""
        if isinstance(step, GateGrad):
            self._edges.gate_grad(step, before)
        elif isinstance(step, SpreadGrad):
            self._edges.spread_grad(step)
        elif isinstance(step, ExpandGrad):
            self._edges.expand_grad(step, before)
        else:
            self._edges.backward(step)

    def attend(self, step: Attend, leaves: Finish | None) -> None:
        """Compute the value of a step that attends and its softmax, and leave the moments for the norm of `leaves`."""
        self._attend.forward(step, leaves)

    def attend_grad(self, step: AttendGrad) -> None:
        """Compute the gradients of the source, target, bonds and vectors of a step that attends."""
        self._attend.backward(step)

    def add_grad(self, step: AddGrad) -> None:
        """Add a gradient to an earlier one."""
        self._edges.add_grad(step)

    def finish(self, step: Finish, leaves: Finish | None) -> None:
        """Compute the value of a layer's end, and leave the moments for the norm of `leaves`."""
        self._finish.forward(step, leaves)

    def leave_moments(self, step: Finish) -> None:
        """Leave the moments for the norm of a layer's end, unless it needs none or the launch before has left them."""
        self._finish.leave_moments(step)

    def finish_grad(self, step: FinishGrad, leaves: FinishGrad | None) -> None:
        """Compute the gradients of the source of a layer's end and of its norm, and leave the sums for the norm of `leaves`."""
        self._finish.backward(step, leaves)

    def leave_sums(self, step: FinishGrad) -> None:
        """Leave the sums for the norm of a layer's end, unless it has none or the launch before has left them."""
        self._finish.leave_sums(step)

    def normalize(self, step: Normalize) -> None:
        """Compute the value of a step that scales rows to length 1."""
        self._pool.normalize(step)

    def normalize_grad(self, step: NormalizeGrad) -> None:
        """Compute the gradient of the source of a step that scales rows to length 1."""
        self._pool.normalize_grad(step)

    def pool(self, value: int, pooled: Tensor, end: Finish | None) -> None:
        """Compute the pooled rows of a value, `pooled` [B, H], which `end` is still to compute if it is not None."""
        if end is not None:
            self._finish.leave_moments(end)
        self._pool.pool(value, pooled, end)

    def pool_grad(self, step: PoolGrad, grad_pooled: Tensor, leaves: FinishGrad | None) -> None:
        """Compute the gradient of a value that is pooled, and leave the sums for the norm of `leaves`."""
        self._pool.pool_grad(step, grad_pooled, leaves)
