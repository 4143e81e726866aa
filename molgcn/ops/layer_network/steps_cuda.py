"""The steps of `molgcn::layer_network` on CUDA, one after another or several in a launch."""

from __future__ import annotations

from torch import Tensor

from molgcn.cuda_runtime.launch import gpu
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
from molgcn.ops.layer_network.rows_cuda import RowKernels
from molgcn.ops.layer_network.rows_pad_cuda import pad_rows
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
        self._sums, ends = workspace.sums, LayerEnds(run, workspace)
        self._rows = RowKernels(run, workspace, ends)
        self._products = TensorCoreProducts(run, workspace, ends) if tensor_cores else CublasProducts(run)
        self._launches, self._grad_launches, self._pooled_end = {}, {}, None
        device = gpu(run.graph.x.device) if tensor_cores else None
        if run.is_backward:
            if isinstance(self._products, TensorCoreProducts):
                self._products.prepare()
            self._rows.prepare()
            self._sums.add_zeros(run.zero_gradients)
            self._launches = again_launches(run, run.backward.steps)
            self._grad_launches = backward_launches(run, run.backward.steps, device)
        else:
            self._launches = forward_launches(run, device)
            self._pooled_end = pooled_end(run, self._launches)

    def pad(self, given: Tensor, to: Rows) -> None:
        """Copy an input whose width is not a multiple of four."""
        pad_rows(given, to)

    def forward(self, step: Step) -> None:
        """Compute a step's value, unless a later step's launch or that of the pooling does."""
        launch = self._launches.get(step)
        if launch is not None and step is not self._pooled_end:
            self._compute(launch)

    def _compute(self, launch: Launch) -> None:
        if launch.before is not None:
            self._rows.leave_moments(launch.before)
        if isinstance(launch.step, Linear):
            self._products.linear(launch)
        elif isinstance(launch.step, Gather):
            self._rows.gather(launch.step, launch)
        elif isinstance(launch.step, Finish):
            self._rows.finish(launch.step, launch.leaves)
        elif isinstance(launch.step, Expand | Spread | EdgeStep | Gate):
            self._rows.edges(launch)
        elif isinstance(launch.step, Attend):
            self._rows.attend(launch.step, launch.leaves)
        else:
            self._rows.normalize(launch.step)

    def again(self, step: Step) -> None:
        """Compute a step's value again in a backward pass, unless a later step's launch does, with the moments that forward has kept."""
        self.forward(step)

    def pool(self, value: int, pooled: Tensor) -> None:
        """Compute the pooled rows of a value, `pooled` [B, H]."""
        self._rows.pool(value, pooled, self._pooled_end if value == self._run.program.out else None)

    def pool_grad(self, step: PoolGrad, grad_pooled: Tensor) -> None:
        """Compute the gradient of a value, given the gradient of its pooled rows, `grad_pooled` [B, H]."""
        self._rows.pool_grad(step, grad_pooled, self._grad_launches[step].leaves)

    def backward(self, step: GradStep) -> None:
        """Compute the gradients that a backward step describes, unless a later step's launch does."""
        launch = self._grad_launches.get(step)
        if launch is None:
            return
        if launch.before is not None:
            self._rows.leave_sums(launch.before)
        if isinstance(step, (WeightGrads, InputGrad)) and self._reads_bonds(step):
            self._sums.launch()
        if isinstance(step, WeightGrads):
            self._products.weight_grads(step)
        elif isinstance(step, InputGrad):
            self._products.input_grad(launch)
        elif isinstance(step, GatherGrad):
            self._rows.gather_grad(step, launch.leaves)
        elif isinstance(step, FinishGrad):
            self._rows.finish_grad(step, launch.leaves)
        elif isinstance(step, ExpandGrad | SpreadGrad | EdgeGrad | GateGrad):
            self._rows.edges_grad(step, launch.before)
        elif isinstance(step, AttendGrad):
            self._rows.attend_grad(step)
        elif isinstance(step, AddGrad):
            self._rows.add_grad(step)
        elif isinstance(step, NormalizeGrad):
            self._rows.normalize_grad(step)
        if step is self._run.backward.steps[-1]:
            self._sums.launch()

    def _reads_bonds(self, step: WeightGrads | InputGrad) -> bool:
        """Return whether a step reads gradients of bonds, of which parts may have been left."""
        gradients = [product.grad for product in step.products] if isinstance(step, WeightGrads) else [step.grad]
        return any(self._run.program.values[self._run.backward.gradients[number]].rows == "bonds" for number in gradients)
