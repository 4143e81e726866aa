"""The steps of a pass that are not matrix products, by the kernels of `cuda/rows_*.cu`."""

from __future__ import annotations

from torch import Tensor

from molgcn.ops.layer_network.backward import FinishGrad, GatherGrad, NormalizeGrad
from molgcn.ops.layer_network.passes import Pass
from molgcn.ops.layer_network.rows_finish_cuda import FinishLaunches
from molgcn.ops.layer_network.rows_gather_cuda import GatherLaunches
from molgcn.ops.layer_network.rows_launches import RowLaunches
from molgcn.ops.layer_network.rows_pool_cuda import PoolLaunches
from molgcn.ops.layer_network.steps import Finish, Gather, Linear, Normalize
from molgcn.ops.layer_network.workspace import Workspace


class RowKernels:
    """The kernels of a pass that work on rows.

    Args:
        run: The pass.
        workspace: The counters and scratch memory of the kernels.
    """

    def __init__(self, run: Pass, workspace: Workspace) -> None:
        launches = RowLaunches(run, workspace)
        self._gather = GatherLaunches(launches)
        self._finish = FinishLaunches(launches)
        self._pool = PoolLaunches(launches)

    def gather(self, step: Gather) -> None:
        """Compute the value of a gather."""
        self._gather.forward(step)

    def gather_grad(self, step: GatherGrad) -> None:
        """Compute the gradients of a gather's source, bonds and eps."""
        self._gather.backward(step)

    def finish(self, step: Finish, *, has_moments: bool) -> None:
        """Compute the value of a layer's end. `has_moments` says whether its norm's batch moments have been computed."""
        self._finish.forward(step, has_moments=has_moments)

    def finish_grad(self, step: FinishGrad) -> None:
        """Compute the gradients of the source of a layer's end, and of its norm's weight and bias."""
        self._finish.backward(step)

    def normalize(self, step: Normalize) -> None:
        """Compute the value of a step that scales rows to length 1."""
        self._pool.normalize(step)

    def normalize_grad(self, step: NormalizeGrad) -> None:
        """Compute the gradient of the source of a step that scales rows to length 1."""
        self._pool.normalize_grad(step)

    def pool(self, pooled: Tensor) -> None:
        """Compute the pooled rows of the last value, `pooled` [B, H]."""
        self._pool.pool(pooled)

    def pool_grad(self, grad_pooled: Tensor, mask: Linear | None) -> None:
        """Compute gradient 0, that of the last value, times the derivative of `mask`."""
        self._pool.pool_grad(grad_pooled, mask)
