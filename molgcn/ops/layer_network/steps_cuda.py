"""The steps of `molgcn::layer_network` on CUDA, one after another or several in a launch."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from molgcn.cuda_runtime.launch import gpu
from molgcn.ops.layer_network.early_launches import ALONE, Beside, early_grad_launches, early_launches
from molgcn.ops.layer_network.grad_launches_cuda import backward_launches
from molgcn.ops.layer_network.gradient_steps import (
    AddGrad,
    AttendGrad,
    EdgeGrad,
    ExpandGrad,
    FinishGrad,
    GateGrad,
    GatherGrad,
    GradStep,
    InputGrad,
    NormalizeGrad,
    PoolGrad,
    SpreadGrad,
    WeightGrads,
)
from molgcn.ops.layer_network.launches_cuda import Launch, again_launches, forward_launches, pooled_end
from molgcn.ops.layer_network.layer_ends_cuda import LayerEnds
from molgcn.ops.layer_network.passes import Pass, Rows, uses_tensor_cores
from molgcn.ops.layer_network.products_cublas import CublasProducts
from molgcn.ops.layer_network.products_cuda import TensorCoreProducts
from molgcn.ops.layer_network.rows_attend_cuda import AttendLaunches
from molgcn.ops.layer_network.rows_edges_cuda import EdgeLaunches
from molgcn.ops.layer_network.rows_finish_cuda import FinishLaunches
from molgcn.ops.layer_network.rows_gather_cuda import GatherLaunches
from molgcn.ops.layer_network.rows_launches import RowLaunches
from molgcn.ops.layer_network.rows_pad_cuda import pad_rows
from molgcn.ops.layer_network.rows_pool_cuda import PoolLaunches
from molgcn.ops.layer_network.steps import Attend, EdgeStep, Expand, Finish, Gate, Gather, Linear, Spread, Step
from molgcn.ops.layer_network.workspace import Workspace


class CudaSteps:
    """The steps of a pass by the kernels of `cuda/`.

    Args:
        run: The pass.
    """

    signs_alone = True

    def __init__(self, run: Pass) -> None:
        self._run = run
        workspace, tensor_cores = Workspace(run.graph.x, overlaps=run.is_backward), uses_tensor_cores(run.call)
        self._workspace, self._sums, ends = workspace, workspace.sums, LayerEnds(run, workspace)
        rows = RowLaunches(run, workspace, ends)
        self._gather, self._edges, self._finish = GatherLaunches(rows), EdgeLaunches(rows), FinishLaunches(rows)
        self._pool, self._attend = PoolLaunches(rows), AttendLaunches(rows, self._edges)
        self._products = TensorCoreProducts(run, workspace, ends) if tensor_cores else CublasProducts(run)
        self._launches, self._grad_launches, self._pooled_end = {}, {}, None
        self._beside: Mapping[GradStep | Step, Beside]
        device = gpu(run.graph.x.device) if tensor_cores else None
        if run.is_backward:
            if isinstance(self._products, TensorCoreProducts):
                self._products.prepare()
            self._gather.prepare()
            self._edges.prepare()
            self._sums.add_zeros(run.zero_gradients)
            self._launches = again_launches(run, run.backward.steps)
            self._grad_launches = backward_launches(run, run.backward.steps, device)
            self._beside = early_grad_launches(run, run.backward.steps, self._grad_launches)
        else:
            self._launches = forward_launches(run, device)
            self._pooled_end = pooled_end(run, self._launches)
            self._beside = early_launches(run, self._launches)

    def pad(self, given: Tensor, to: Rows) -> None:
        """Copy an input whose width is not a multiple of four."""
        pad_rows(given, to)

    def forward(self, step: Step) -> None:
        """Compute a step's value, unless a later step's launch or that of the pooling does."""
        launch = self._launches.get(step)
        if launch is not None and step is not self._pooled_end:
            self._compute(launch)

    def _compute(self, launch: Launch) -> None:
        step = launch.step
        if launch.before is not None:
            self._finish.leave_moments(launch.before)
        if isinstance(step, Linear):
            self._workspace.beside = self._beside.get(step, ALONE)
            self._products.linear(launch)
        elif isinstance(step, Gather):
            self._gather.forward(step, launch)
        elif isinstance(step, Finish):
            self._finish.forward(step, launch.leaves)
        elif isinstance(step, Gate):
            self._edges.gate(step, launch.expand, launch.leaves)
        elif isinstance(step, Spread):
            self._edges.spread(step)
        elif isinstance(step, Expand):
            self._edges.expand(step, launch.after)
        elif isinstance(step, EdgeStep):
            self._edges.forward(step, launch.before)
        elif isinstance(step, Attend):
            self._attend.forward(step, launch.leaves)
        else:
            self._pool.normalize(step)

    def pool(self, value: int, pooled: Tensor) -> None:
        """Compute the pooled rows of a value, `pooled` [B, H]."""
        end = self._pooled_end if value == self._run.program.out else None
        if end is not None:
            self._finish.leave_moments(end)
        self._pool.pool(value, pooled, end)

    def pool_grad(self, step: PoolGrad, grad_pooled: Tensor) -> None:
        """Compute the gradient of a value, given the gradient of its pooled rows, `grad_pooled` [B, H]."""
        self._pool.pool_grad(step, grad_pooled, self._grad_launches[step].leaves)

    def backward(self, step: GradStep) -> None:
        """Compute the gradients that a backward step describes, unless a later step's launch does."""
        launch = self._grad_launches.get(step)
        if launch is None:
            return
        if launch.before is not None:
            self._finish.leave_sums(launch.before)
        if isinstance(step, (WeightGrads, InputGrad)) and self._reads_bonds(step):
            self._sums.launch()
        if isinstance(step, WeightGrads):
            self._products.weight_grads(step)
        elif isinstance(step, InputGrad):
            self._workspace.beside = self._beside.get(launch.step, ALONE)
            self._products.input_grad(launch)
        elif isinstance(step, GatherGrad):
            self._gather.backward(step, launch.leaves)
        elif isinstance(launch.step, EdgeGrad):
            self._edges.backward(launch.step, launch.after)
        elif isinstance(step, FinishGrad):
            self._finish.backward(step, launch.leaves)
        elif isinstance(step, GateGrad):
            self._edges.gate_grad(step, launch.before)
        elif isinstance(step, SpreadGrad):
            self._edges.spread_grad(step)
        elif isinstance(step, ExpandGrad):
            self._edges.expand_grad(step, launch.before, launch.added)
        elif isinstance(step, AttendGrad):
            self._attend.backward(step)
        elif isinstance(step, AddGrad):
            self._edges.add_grad(step)
        elif isinstance(step, NormalizeGrad):
            self._pool.normalize_grad(step)
        if step is self._run.backward.steps[-1]:
            self._sums.launch()

    def _reads_bonds(self, step: WeightGrads | InputGrad) -> bool:
        """Return whether a step reads gradients of bonds, of which parts may have been left."""
        gradients = [product.grad for product in step.products] if isinstance(step, WeightGrads) else [step.grad]
        return any(self._run.program.values[self._run.backward.gradients[number]].rows == "bonds" for number in gradients)
