r"""`molgcn::gcn_conv`: one graph convolution on any graph, forward and backward.

The operator takes the edge list as users have it, in any order; each device registers an implementation of `molgcn::gcn_conv` and
`molgcn::gcn_conv_backward`, names itself by :func:`runs_on`, and may remember what it made of an edge list.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.float64)


class ConvInputs(NamedTuple):
    """Arguments of :func:`gcn_conv`, in the order of its schema; N nodes, E edges, F channels in, C channels out.

    Attributes:
        x: float32 or float64 [N, F].
        weight: [C, F], as `torch.nn.Linear` stores it.
        bias: [C] or None.
        edge_index: int64 [2, E], source and target of every edge, in any order; several edges between two nodes all count.
        edge_weight: [E] or None for ones.
        normalize: symmetric normalisation by the nodes' degrees, the sums of the weights of their incoming edges.
        add_self_loops: nodes without an edge to themselves get one of weight `loop_weight`; of several such edges the last one counts.
        loop_weight: 1, or 2 for "improved" GCNs.
        reverse: edges go from `edge_index[1]` to `edge_index[0]`: PyG's flow "target_to_source".
    """

    x: Tensor
    weight: Tensor
    bias: Tensor | None
    edge_index: Tensor
    edge_weight: Tensor | None
    normalize: bool = True
    add_self_loops: bool = True
    loop_weight: float = 1.0
    reverse: bool = False


_ARGUMENTS = (
    "Tensor x, Tensor weight, Tensor? bias, Tensor edge_index, Tensor? edge_weight, bool normalize, bool add_self_loops, "
    "float loop_weight, bool reverse"
)

torch.library.define("molgcn::gcn_conv", f"({_ARGUMENTS}) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
torch.library.define(
    "molgcn::gcn_conv_backward",
    f"(Tensor grad_out, bool[] wanted, {_ARGUMENTS}) -> (Tensor grad_x, Tensor grad_weight, Tensor grad_bias, Tensor grad_edge_weight)",
    tags=(torch.Tag.pt2_compliant_tag,),
)

_DEVICES: set[str] = set()


def runs_on(device_type: str) -> None:
    """Declares that a device has both operators."""
    _DEVICES.add(device_type)


def available(device_type: str) -> bool:
    """Whether :func:`gcn_conv` runs on such tensors."""
    return device_type in _DEVICES


def gcn_conv(inputs: ConvInputs) -> Tensor:
    r"""One graph convolution, [N, C].

    .. math::
        \hat A X W^T + b, \qquad \hat A = D^{-1/2} (A + I) D^{-1/2}

    with :math:`A_{ij}` the summed weight of the edges from j to i; without `normalize` :math:`\hat A = A + I`, without
    `add_self_loops` I is left out. Source: Kipf and Welling, ICLR 2017, equation 2.

    Args:
        inputs: see :class:`ConvInputs`; differentiable in x, weight, bias and edge_weight, as often as wanted.

    Raises:
        ValueError: for tensors whose shape, dtype or device does not fit.
        IndexError: for an edge whose node `x` does not have.
    """
    return torch.ops.molgcn.gcn_conv(*inputs)


def check(inputs: ConvInputs) -> None:
    """Check shapes, dtypes and devices; the values of edge_index are left to the implementations.

    Raises:
        ValueError: naming the first argument that does not fit.
    """
    x, weight, edge_index = inputs.x, inputs.weight, inputs.edge_index
    if x.dim() != 2 or weight.dim() != 2 or weight.shape[1] != x.shape[1]:
        raise ValueError(f"gcn_conv: expected x [N, F] and weight [C, F], got {list(x.shape)} and {list(weight.shape)}")
    if edge_index.dim() != 2 or edge_index.shape[0] != 2 or edge_index.dtype != torch.int64:
        raise ValueError(f"gcn_conv: expected edge_index int64 [2, E], got {edge_index.dtype} {list(edge_index.shape)}")
    if x.dtype not in DTYPES:
        raise ValueError(f"gcn_conv: computes in float32 or float64, not {x.dtype}")
    expected = {"bias": (inputs.bias, weight.shape[:1]), "edge_weight": (inputs.edge_weight, edge_index.shape[1:])}
    for name, (tensor, shape) in expected.items():
        if tensor is not None and tensor.shape != shape:
            raise ValueError(f"gcn_conv: expected {name} {list(shape)}, got {list(tensor.shape)}")
    for tensor in (weight, inputs.bias, inputs.edge_weight):
        if tensor is not None and tensor.dtype != x.dtype:
            raise ValueError(f"gcn_conv: x is {x.dtype}, but an argument is {tensor.dtype}; give both alike")
    for tensor in (weight, inputs.bias, edge_index, inputs.edge_weight):
        if tensor is not None and tensor.device != x.device:
            raise ValueError(f"gcn_conv: x is on {x.device}, but an argument is on {tensor.device}; give both alike")


@torch.library.register_fake("molgcn::gcn_conv")
def empty_output(*args: Any) -> Tensor:
    """Uninitialised [N, C]."""
    inputs = ConvInputs(*args)
    return inputs.x.new_empty(inputs.x.shape[0], inputs.weight.shape[0])


@torch.library.register_fake("molgcn::gcn_conv_backward")
def empty_gradients(grad_out: Tensor, wanted: list[bool], *args: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Uninitialised gradients of x, weight, bias and edge_weight; empty where not wanted."""
    inputs = ConvInputs(*args)
    x, weight = inputs.x, inputs.weight
    shapes = (x.shape, weight.shape, weight.shape[:1], inputs.edge_index.shape[1:])
    grad_x, grad_weight, grad_bias, grad_edge = (x.new_empty(shape if want else (0,)) for shape, want in zip(shapes, wanted, strict=True))
    return grad_x, grad_weight, grad_bias, grad_edge


_DIFFERENTIABLE = ("x", "weight", "bias", "edge_weight")
_PLACES = tuple(ConvInputs._fields.index(name) for name in _DIFFERENTIABLE)


def _setup_context(ctx: Any, inputs: tuple, output: Tensor) -> None:
    arguments = ConvInputs(*inputs)
    ctx.save_for_backward(*arguments[:5])
    ctx.options = arguments[5:]


def _backward(ctx: Any, grad_out: Tensor) -> tuple:
    inputs = ConvInputs(*ctx.saved_tensors, *ctx.options)
    wanted = [ctx.needs_input_grad[place] for place in _PLACES]
    found: Any
    if torch.is_grad_enabled() and not torch.compiler.is_compiling():  # create_graph=True: derivatives of the derivatives are asked for
        found = _differentiable_gradients(grad_out, wanted, inputs)
    else:
        found = torch.ops.molgcn.gcn_conv_backward(grad_out, wanted, *inputs)
    gradients: list[Tensor | None] = [None] * len(ConvInputs._fields)
    for place, want, gradient in zip(_PLACES, wanted, found, strict=True):
        gradients[place] = gradient if want else None
    return tuple(gradients)


def _differentiable_gradients(grad_out: Tensor, wanted: list[bool], inputs: ConvInputs) -> list[Tensor | None]:
    """The gradients by plain PyTorch, which can be differentiated again.

    With respect to views of the inputs: these may have been computed from each other, which is not this layer's to differentiate.
    """
    from molgcn.ops.gcn_conv_reference import gcn_conv_reference

    names = [name for name, want in zip(_DIFFERENTIABLE, wanted, strict=True) if want]
    views = {name: tensor.view_as(tensor) for name in names for tensor in [getattr(inputs, name)]}
    out = gcn_conv_reference(inputs._replace(**views))
    found = iter(torch.autograd.grad(out, list(views.values()), grad_out, create_graph=True, allow_unused=True))
    return [next(found) if want else None for want in wanted]


def _no_gradient(ctx: Any, *grads: Any) -> tuple:
    raise RuntimeError("gcn_conv_backward has no derivative of its own; differentiate gcn_conv with create_graph=True")


torch.library.register_autograd("molgcn::gcn_conv", _backward, setup_context=_setup_context)
torch.library.register_autograd("molgcn::gcn_conv_backward", _no_gradient)
