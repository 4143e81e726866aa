r"""`molgcn::gine_aggregate`: GINE's sums over the neighbours, :math:`\sum_j \mathrm{relu}(x_j + e_{ij})`, forward and backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from molgcn.ops.expect import expect, expect_edges
from molgcn.ops.fake import register_fake
from molgcn.ops.operator import Operator

DTYPES = (torch.float32, torch.float64)


class GineInputs(NamedTuple):
    """The arguments of :func:`gine_aggregate`, in the order of its schema: M sources, N targets, E edges, D channels.

    Attributes:
        x: The sources' features, float32 or float64 [M, D].
        edges: The edges' features [E, D].
        edge_index: The source and target of every edge, int64 [2, E], in any order. Several edges between two nodes all count.
        num_targets: The number of targets, N.
        reverse: Whether edges go from `edge_index[1]` to `edge_index[0]`: PyG's flow "target_to_source".
    """

    x: Tensor
    edges: Tensor
    edge_index: Tensor
    num_targets: int
    reverse: bool = False


_ARGUMENTS = "Tensor x, Tensor edges, Tensor edge_index, SymInt num_targets, bool reverse"
# In a CUDA graph that torch.compile makes by itself, edge_index would be a copy, for which no sorted edges are remembered
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.cudagraph_unsafe)
torch.library.define("molgcn::gine_aggregate", f"({_ARGUMENTS}) -> Tensor", tags=_TAGS)
torch.library.define(
    "molgcn::gine_aggregate_backward", f"(Tensor grad_out, {_ARGUMENTS}) -> (Tensor grad_x, Tensor grad_edges)", tags=_TAGS
)


def gine_aggregate(inputs: GineInputs) -> Tensor:
    r"""Return the sums :math:`\sum_j \mathrm{relu}(x_j + e_{ij})` over each target's incoming edges, [N, D].

    No tensor of size [E, D] is made, except the gradient of `edges`. Source: Hu et al., ICLR 2020.

    Args:
        inputs: The arguments; see :class:`GineInputs`. The result is differentiable any number of times in x and edges.

    Raises:
        ValueError: If a tensor's shape, dtype or device does not fit.
        IndexError: If an edge names a node that does not exist.
        UserError: If there are more nodes or edges than 32 bits can count, or if edge_index is new while a CUDA graph is captured.
    """
    return OPERATOR(inputs)


def gine_aggregate_reference(inputs: GineInputs) -> Tensor:
    """Return what :func:`gine_aggregate` returns, computed by plain PyTorch."""
    source, target = inputs.edge_index.flip(0) if inputs.reverse else inputs.edge_index
    x = inputs.x
    return x.new_zeros(inputs.num_targets, x.shape[1]).index_add(0, target, (x[source] + inputs.edges).relu())


def check(inputs: GineInputs) -> None:
    """Check shapes, dtypes and devices. The implementations check the values of edge_index.

    Raises:
        ValueError: If an argument does not fit. The message names the first one.
    """
    x = inputs.x
    if x.dim() != 2 or x.dtype not in DTYPES:
        raise ValueError(f"gine_aggregate: expected x [M, D] in float32 or float64, got {list(x.shape)} in {x.dtype}")
    expect_edges("gine_aggregate", inputs.edge_index, x)
    expect("gine_aggregate", "edges", inputs.edges, (inputs.edge_index.shape[1], x.shape[1]), x)


def check_backward(grad_out: Tensor, inputs: GineInputs) -> None:
    """Check the gradient that `molgcn::gine_aggregate_backward` is given; :func:`check` has checked its inputs.

    Raises:
        ValueError: If it does not fit.
    """
    expect("gine_aggregate_backward", "grad_out", grad_out, (inputs.num_targets, inputs.x.shape[1]), inputs.x)


@register_fake("molgcn::gine_aggregate")
def empty_output(*args: Any) -> Tensor:
    """Return an uninitialised output [N, D]."""
    inputs = GineInputs(*args)
    return inputs.x.new_empty(inputs.num_targets, inputs.x.shape[1])


@register_fake("molgcn::gine_aggregate_backward")
def empty_gradients(grad_out: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    """Return uninitialised gradients of x and edges."""
    inputs = GineInputs(*args)
    return inputs.x.new_empty(inputs.x.shape), inputs.x.new_empty(inputs.edges.shape)


def _gradients(
    backward: Callable[..., Any], grad_out: Tensor, outputs: tuple[Tensor, ...], wanted: list[bool], inputs: GineInputs
) -> tuple[Tensor, ...]:
    found: tuple[Tensor, ...] = backward(grad_out, *inputs)
    return found


OPERATOR = Operator("molgcn::gine_aggregate", GineInputs, 3, ("x", "edges"), _gradients, lambda: gine_aggregate_reference)
