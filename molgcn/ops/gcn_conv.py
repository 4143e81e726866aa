r"""`molgcn::gcn_conv`: one graph convolution on any graph, forward and backward.

The edge list may be in any order. Each device registers an implementation of `molgcn::gcn_conv` and `molgcn::gcn_conv_backward`, and may
remember the edges that it has sorted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from molgcn.ops.expect import expect, expect_edges
from molgcn.ops.fake import register_fake
from molgcn.ops.operator import Operator

DTYPES = (torch.float32, torch.float64)


class ConvInputs(NamedTuple):
    """The arguments of :func:`gcn_conv`, in the order of its schema: N nodes, E edges, F input channels, C output channels.

    Attributes:
        x: The nodes' features, float32 or float64 [N, F].
        weight: The weight [C, F], as `torch.nn.Linear` stores it. None means the identity, with C = F.
        bias: The bias [C], or None.
        edge_index: The source and target of every edge, int64 [2, E], in any order. Several edges between two nodes all count.
        edge_weight: The edges' weights [E], or None for ones.
        normalize: Whether to normalise symmetrically by the nodes' degrees. A degree is the sum of the incoming edges' weights.
        add_self_loops: Whether nodes without a self-loop get one of weight `loop_weight`. If a node has several, only the last one counts.
        loop_weight: The weight of added self-loops: 1, or 2 for PyG's `improved=True`.
        reverse: Whether edges go from `edge_index[1]` to `edge_index[0]`: PyG's flow "target_to_source".
    """

    x: Tensor
    weight: Tensor | None
    bias: Tensor | None
    edge_index: Tensor
    edge_weight: Tensor | None
    normalize: bool = True
    add_self_loops: bool = True
    loop_weight: float = 1.0
    reverse: bool = False

    @property
    def out_channels(self) -> int:
        """The number of output channels, C."""
        return self.x.shape[1] if self.weight is None else self.weight.shape[0]


_ARGUMENTS = (
    "Tensor x, Tensor? weight, Tensor? bias, Tensor edge_index, Tensor? edge_weight, bool normalize, bool add_self_loops, "
    "float loop_weight, bool reverse"
)
# In a CUDA graph that torch.compile makes by itself, edge_index would be a copy, for which no sorted edges are remembered
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.cudagraph_unsafe)
torch.library.define("molgcn::gcn_conv", f"({_ARGUMENTS}) -> Tensor", tags=_TAGS)
torch.library.define(
    "molgcn::gcn_conv_backward",
    f"(Tensor grad_out, bool[] wanted, {_ARGUMENTS}) -> (Tensor grad_x, Tensor grad_weight, Tensor grad_bias, Tensor grad_edge_weight)",
    tags=_TAGS,
)


def gcn_conv(inputs: ConvInputs) -> Tensor:
    r"""Return one graph convolution of the nodes' features, [N, C].

    .. math::
        \hat A X W^T + b, \qquad \hat A = D^{-1/2} (A + I) D^{-1/2}

    :math:`A_{ij}` is the sum of the weights of the edges from j to i. Without `normalize`, :math:`\hat A = A + I`. Without
    `add_self_loops`, :math:`I` is left out. Source: Kipf and Welling, ICLR 2017, equation 2.

    Args:
        inputs: The arguments; see :class:`ConvInputs`. The result is differentiable any number of times in x, weight, bias and
            edge_weight.

    Raises:
        ValueError: If a tensor's shape, dtype or device does not fit.
        IndexError: If an edge names a node that `x` does not have.
        UserError: If there are more nodes or edges than 32 bits can count, or if edge_index is new while a CUDA graph is captured.
    """
    return OPERATOR(inputs)


def check(inputs: ConvInputs) -> None:
    """Check shapes, dtypes and devices. The implementations check the values of edge_index.

    Raises:
        ValueError: If an argument does not fit. The message names the first one.
    """
    x, weight, edge_index = inputs.x, inputs.weight, inputs.edge_index
    of_weight = None if weight is None else list(weight.shape)
    if x.dim() != 2 or (of_weight is not None and of_weight[1:] != [x.shape[1]]):
        raise ValueError(f"gcn_conv: expected x [N, F] and weight [C, F], got {list(x.shape)} and {of_weight}")
    if x.dtype not in DTYPES:
        raise ValueError(f"gcn_conv: computes in float32 or float64, not {x.dtype}")
    expect_edges("gcn_conv", edge_index, x)
    channels = inputs.out_channels
    shapes = {"weight": (channels, x.shape[1]), "bias": (channels,), "edge_weight": edge_index.shape[1:]}
    for name, shape in shapes.items():
        if (tensor := getattr(inputs, name)) is not None:
            expect("gcn_conv", name, tensor, shape, x)


def check_backward(grad_out: Tensor, wanted: list[bool], inputs: ConvInputs) -> None:
    """Check the arguments of `molgcn::gcn_conv_backward` besides its inputs, which :func:`check` has checked.

    Raises:
        ValueError: If an argument does not fit. The message names the first one.
    """
    expect("gcn_conv_backward", "grad_out", grad_out, (inputs.x.shape[0], inputs.out_channels), inputs.x)
    if len(wanted) != 4:
        raise ValueError(f"gcn_conv_backward: expected wanted for x, weight, bias and edge_weight, got {wanted}")


@register_fake("molgcn::gcn_conv")
def empty_output(*args: Any) -> Tensor:
    """Return an uninitialised output [N, C]."""
    inputs = ConvInputs(*args)
    return inputs.x.new_empty(inputs.x.shape[0], inputs.out_channels)


@register_fake("molgcn::gcn_conv_backward")
def empty_gradients(grad_out: Tensor, wanted: list[bool], *args: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return uninitialised gradients of x, weight, bias and edge_weight, each empty if it is not wanted."""
    inputs = ConvInputs(*args)
    x, channels = inputs.x, (inputs.out_channels,)
    shapes = (x.shape, channels + x.shape[1:], channels, inputs.edge_index.shape[1:])
    grad_x, grad_weight, grad_bias, grad_edge = (x.new_empty(shape if want else (0,)) for shape, want in zip(shapes, wanted, strict=True))
    return grad_x, grad_weight, grad_bias, grad_edge


def _gradients(
    backward: Callable[..., Any], grad_out: Tensor, outputs: tuple[Tensor, ...], wanted: list[bool], inputs: ConvInputs
) -> tuple[Tensor, ...]:
    found: tuple[Tensor, ...] = backward(grad_out, wanted, *inputs)
    return found


def _reference() -> Callable[[ConvInputs], Tensor]:
    from molgcn.ops.gcn_conv_reference import gcn_conv_reference

    return gcn_conv_reference


OPERATOR = Operator("molgcn::gcn_conv", ConvInputs, 5, ("x", "weight", "bias", "edge_weight"), _gradients, _reference)
