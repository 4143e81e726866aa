"""The passes of `molgcn::layer_network` on CUDA by the kernels of :mod:`molgcn.ops.schedule`, whose names all functions take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor

from molgcn.ops import gcn_cuda
from molgcn.ops.gcn_network import GcnCall
from molgcn.ops.layer_network import engine, passes
from molgcn.ops.layer_network.call import LayerNetworkCall
from molgcn.ops.layer_network.engine import StepsOf
from molgcn.ops.layer_network.implementation import Gradients, Outputs
from molgcn.ops.layer_network.steps_cuda import CudaSteps
from molgcn.ops.layer_network.tiles_cuda import TileSteps

_STEPS: Mapping[str, StepsOf] = {"tiles": TileSteps, "rows": CudaSteps}
PLANNED = ("tile", *_STEPS)
"""The kernels whose launches for a capacity compute any smaller batch."""


def gcn_of(call: LayerNetworkCall) -> GcnCall:
    """Return a call of graph convolutions in the form that the kernels made for them read."""
    gcn = GcnCall.of(call)
    assert gcn is not None
    return gcn


def takes_end(call: LayerNetworkCall, kernels: str) -> bool:
    """Return whether the kernels compute what follows the pooling, or nothing does; see :func:`molgcn.ops.gcn_cuda.takes_end`."""
    if kernels in gcn_cuda.ENGINES:
        return gcn_cuda.takes_end(gcn_of(call), kernels)
    return not call.head and call.objective is None


def saved_numbers(call: LayerNetworkCall, kernels: str) -> int:
    """Return how many numbers :func:`forward` keeps for backward."""
    if kernels in gcn_cuda.ENGINES:
        return gcn_cuda.saved_numbers(gcn_of(call), kernels)
    return passes.saved_numbers(call, signs_alone=_STEPS[kernels].signs_alone)


def forward(call: LayerNetworkCall, kernels: str) -> Outputs:
    """Return the outputs of a call on encoded rows whose tensors are as kernels read them, and whose end the kernels take."""
    return gcn_cuda.forward(gcn_of(call), kernels) if kernels in gcn_cuda.ENGINES else engine.forward(call, _STEPS[kernels])


def backward(
    call: LayerNetworkCall,
    kernels: str,
    grad_result: Tensor,
    saved: Tensor,
    of_loss: Sequence[Tensor] = (),
    *,
    grad_x: bool,
    grad_bonds: bool,
) -> Gradients:
    """Return the gradients of x and of the bonds' rows, empty if they are not wanted, and of the parameters and a loss's head.

    Args:
        call: The call on encoded rows.
        kernels: The name of the kernels.
        grad_result: The gradient of the result, as kernels read it.
        saved: What forward has saved, at an address that 128 divides: bytes of a line of the cache, which backward may discard.
        of_loss: What forward has kept of a loss.
        grad_x: Whether the gradient of x is wanted.
        grad_bonds: Whether the gradient of the bonds' rows is wanted.
    """
    if kernels not in gcn_cuda.ENGINES:
        return engine.backward(call, grad_result, saved, _STEPS[kernels], grad_x=grad_x, grad_bonds=grad_bonds)
    of_x, found, of_head = gcn_cuda.backward(gcn_of(call), kernels, grad_result, saved, of_loss, grad_x)
    return of_x, of_x.new_empty(0, 0), [*found.tensors, *of_head]
