"""`molgcn::layer_network` on CUDA, one step of a network after another. Import this module to register it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from molgcn.cuda_runtime.launch import gpu
from molgcn.errors import UserError
from molgcn.ops import encode_cuda
from molgcn.ops.encode import EncodeInputs, check_moments
from molgcn.ops.encode import check as check_encoder
from molgcn.ops.expect import aligned, are_aligned
from molgcn.ops.layer_network import engine, passes, planned
from molgcn.ops.layer_network.call import LayerNetworkCall
from molgcn.ops.layer_network.check import check, check_backward
from molgcn.ops.layer_network.engine import StepsOf
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
from molgcn.ops.layer_network.launches_cuda import (
    Launch,
    again_launches,
    backward_launches,
    forward_launches,
    pooled_end,
)
from molgcn.ops.layer_network.layer_ends_cuda import LayerEnds
from molgcn.ops.layer_network.operator import (
    AllGradients,
    Gradients,
    Implementation,
    Outputs,
    States,
    register_direct,
    register_saved_numbers,
)
from molgcn.ops.layer_network.passes import Pass, Rows, uses_tensor_cores
from molgcn.ops.layer_network.plan_key import Key
from molgcn.ops.layer_network.products_cublas import CublasProducts
from molgcn.ops.layer_network.products_cuda import TensorCoreProducts
from molgcn.ops.layer_network.rows_cuda import RowKernels
from molgcn.ops.layer_network.rows_pad_cuda import pad_rows
from molgcn.ops.layer_network.steps import Attend, EdgeStep, Expand, Finish, Gate, Gather, Linear, Spread, Step
from molgcn.ops.layer_network.tiles_cuda import TileSteps
from molgcn.ops.layer_network.tiles_plan import pays
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
            self._rows.attend(launch.step)
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


def _forward(call: LayerNetworkCall) -> tuple[Outputs, States]:
    call = _prepared(call)
    check(call)
    return engine.forward(call, _steps_of(call)), (None, None)


def _backward(
    call: LayerNetworkCall, moments: Sequence[Tensor | None], grad_pooled: Tensor, saved: Tensor, grad_x: bool, grad_bonds: bool
) -> Gradients:
    call = _prepared(call)
    check_backward(grad_pooled, saved, saved_numbers(call), call)
    steps_of = _steps_of(call)
    of_x, of_bonds, found = engine.backward(call, aligned(grad_pooled), aligned(saved), steps_of, grad_x=grad_x, grad_bonds=grad_bonds)
    return of_x.contiguous(), of_bonds.contiguous(), found


EACH = Implementation(_forward, _backward)
"""The implementation that plans each call by itself. It takes encoded rows."""


def implementation_of(call: LayerNetworkCall) -> Implementation | None:
    """Return the implementation of an eager call, by plans; None where the operator has to plan it.

    A capture plans each call by itself, for exactly its shapes: that costs a replay nothing.
    """
    if torch.cuda.is_current_stream_capturing():
        return None
    key = Key.of(call, _steps_of(call))
    return None if key is None else Implementation(partial(_planned_forward, key), partial(_planned_backward, key))


def _planned_forward(key: Key, call: LayerNetworkCall) -> tuple[Outputs, States]:
    call = _prepared(call)
    states = [None if inputs is None else encode_cuda.outputs_of(inputs) for inputs in call.encoders]
    call = call.encoded(states)
    check(call)
    return planned.forward(key, call, states), states


def _planned_backward(
    key: Key, call: LayerNetworkCall, moments: Sequence[Tensor | None], grad_pooled: Tensor, saved: Tensor, grad_x: bool, grad_bonds: bool
) -> AllGradients:
    check_backward(grad_pooled, saved, planned.saved_numbers(key), call)
    for inputs, made in zip(call.encoders, moments, strict=True):
        if inputs is not None and made is not None:
            check_encoder(inputs)
            check_moments(made, inputs)
    return planned.backward(key, _prepared(call), moments, aligned(grad_pooled), aligned(saved), grad_x, grad_bonds)


def saved_numbers(call: LayerNetworkCall) -> int:
    """Return how many numbers :data:`EACH` keeps for backward."""
    return passes.saved_numbers(call, signs_alone=_steps_of(call).signs_alone)


def _operator(*args: Any) -> Outputs:
    return _forward(LayerNetworkCall.of(*args))[0]


def _operator_backward(grad_pooled: Tensor, saved: Tensor, grad_x: bool, grad_bonds: bool, *args: Any) -> Gradients:
    return _backward(LayerNetworkCall.of(*args), (), grad_pooled, saved, grad_x, grad_bonds)


def _steps_of(call: LayerNetworkCall) -> StepsOf:
    return TileSteps if pays(call) else CudaSteps


def _prepared(call: LayerNetworkCall) -> LayerNetworkCall:
    """Return the call with its tensors in the form that kernels read: contiguous, and values aligned to 16 bytes.

    Raises:
        UserError: If the kernels do not compute in the dtype of x.
    """
    dtype = call.graph.x.dtype
    if dtype not in (torch.float32, torch.float64):
        raise UserError(f"backend=fused on CUDA computes in float32 or float64, not {dtype}. Convert model and batch, or use backend=pyg.")
    if are_aligned([tensor for tensor in call.tensors if tensor is not None]):
        return call
    head = [aligned(tensor) for tensor in call.head]
    first, second = (None if inputs is None else _aligned(inputs) for inputs in call.encoders)
    parameters, statistics = ([aligned(tensor) for tensor in tensors] for tensors in (call.parameters, call.statistics))
    return call._replace(
        graph=call.graph.mapped(aligned), parameters=parameters, statistics=statistics, encoders=(first, second), head=head
    )


def _aligned(inputs: EncodeInputs) -> EncodeInputs:
    return EncodeInputs.of((None if tensor is None else aligned(tensor) for tensor in inputs.tensors), inputs.options)


register_saved_numbers("cuda", saved_numbers)
register_direct("cuda", implementation_of)
torch.library.impl("molgcn::layer_network", "CUDA", _operator)
torch.library.impl("molgcn::layer_network_backward", "CUDA", _operator_backward)
