r"""`molgcn::attention`: graph attention on any graph, GAT's and GATv2's, forward and backward.

The edge list may be in any order. Each device registers an implementation of `molgcn::attention` and `molgcn::attention_backward`.
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


class AttentionInputs(NamedTuple):
    r"""The arguments of :func:`attention`, in the order of its schema: M sources, N targets, E edges, H heads of C channels.

    Without `att`, scores are GAT's, :math:`\mathrm{LeakyReLU}(s_j + t_i + e_{ij})`, with one number per head: K = H. With `att`, they are
    GATv2's, :math:`a \cdot \mathrm{LeakyReLU}(x_j + t_i + e_{ij})`, with one number per channel: K = H * C.

    Attributes:
        source: The sources' columns, float32 or float64 [M, at least H * C]. First comes x, which is summed, head by head. For GAT the
            sources' scores s follow, H columns. If `targets` is None, t follows, K columns. Any further columns are not read.
        targets: The targets' terms t [N, K], or None if sources and targets are the same nodes and t is in `source`.
        edges: The edges' terms e [E + num_loops, K], with those of the added self-loops last; or None.
        att: GATv2's vector a [H, C], or None for GAT.
        edge_index: The source and target of every edge, int64 [2, E], in any order. Several edges between two nodes all count.
        seed: The seed of dropout, int64 [1], or None without dropout.
        num_targets: The number of targets, N.
        heads: The number of heads, H.
        channels: The number of channels of a head, C.
        num_loops: The first `num_loops` nodes each get one self-loop, and all self-loops of the edge list are left out. With 0 the edges
            stay as they are.
        reverse: Whether edges go from `edge_index[1]` to `edge_index[0]`: PyG's flow "target_to_source".
        negative_slope: The negative slope of LeakyReLU.
        dropout: The probability that an attention weight is dropped.
    """

    source: Tensor
    targets: Tensor | None
    edges: Tensor | None
    att: Tensor | None
    edge_index: Tensor
    seed: Tensor | None
    num_targets: int
    heads: int
    channels: int
    num_loops: int = 0
    reverse: bool = False
    negative_slope: float = 0.2
    dropout: float = 0.0

    @property
    def width(self) -> int:
        """The number of channels of all heads, H * C."""
        return self.heads * self.channels

    @property
    def num_scores(self) -> int:
        """The number of columns of `targets` and `edges`, K."""
        return self.heads if self.att is None else self.width

    @property
    def target_offset(self) -> int:
        """The column of `source` that t begins at if `targets` is None."""
        return self.width + (self.heads if self.att is None else 0)

    @property
    def num_entries(self) -> int:
        """The number of edges and added self-loops, E + num_loops."""
        return self.edge_index.shape[1] + self.num_loops


_ARGUMENTS = (
    "Tensor source, Tensor? targets, Tensor? edges, Tensor? att, Tensor edge_index, Tensor? seed, SymInt num_targets, int heads, "
    "int channels, SymInt num_loops, bool reverse, float negative_slope, float dropout"
)
# In a CUDA graph that torch.compile makes by itself, edge_index would be a copy, for which no sorted edges are remembered
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.cudagraph_unsafe)
torch.library.define("molgcn::attention", f"({_ARGUMENTS}) -> (Tensor out, Tensor softmax)", tags=_TAGS)
torch.library.define(
    "molgcn::attention_backward",
    f"(Tensor grad_out, Tensor out, Tensor softmax, {_ARGUMENTS}) -> "
    "(Tensor grad_source, Tensor grad_targets, Tensor grad_edges, Tensor grad_att)",
    tags=_TAGS,
)


def attention(inputs: AttentionInputs) -> Tensor:
    r"""Return the attention-weighted sums of the neighbours' features, [N, H * C].

    .. math::
        \sum_j \alpha_{ij} x_j, \qquad \alpha_{i \cdot} = \mathrm{softmax}_j(\text{score}_{ij})

    No tensor of size [E, H, C] is made, except the gradient of GATv2's `edges`, which has that size itself. A node without edges gets
    zeros. Sources: Veličković et al., ICLR 2018; Brody et al., ICLR 2022.

    Args:
        inputs: The arguments; see :class:`AttentionInputs`. The result is differentiable any number of times in source, targets, edges
            and att.

    Raises:
        ValueError: If a tensor's shape, dtype or device does not fit.
        IndexError: If an edge names a node that does not exist.
        UserError: If there are more nodes or edges than 32 bits can count, or if edge_index is new while a CUDA graph is captured.
    """
    return OPERATOR(inputs)


def check(inputs: AttentionInputs) -> None:
    """Check shapes, dtypes and devices. The implementations check the values of edge_index.

    Raises:
        ValueError: If an argument does not fit. The message names the first one.
    """
    source, scores = inputs.source, inputs.num_scores
    together = inputs.targets is None
    columns = inputs.target_offset + (scores if together else 0)
    if source.dim() != 2 or source.shape[1] < columns or (together and source.shape[0] != inputs.num_targets):
        rows = inputs.num_targets if together else "M"
        raise ValueError(f"attention: expected source [{rows}, at least {columns}], got {list(source.shape)}")
    if source.dtype not in DTYPES:
        raise ValueError(f"attention: computes in float32 or float64, not {source.dtype}")
    expect_edges("attention", inputs.edge_index, source)
    if not 0 <= inputs.num_loops <= min(source.shape[0], inputs.num_targets):
        most = min(source.shape[0], inputs.num_targets)
        raise ValueError(f"attention: expected num_loops in 0 .. {most}, the number of sources or targets, got {inputs.num_loops}")
    shapes = {
        "targets": (inputs.num_targets, scores),
        "edges": (inputs.num_entries, scores),
        "att": (inputs.heads, inputs.channels),
    }
    for name, shape in shapes.items():
        if (tensor := getattr(inputs, name)) is not None:
            expect("attention", name, tensor, shape, source)
    if not 0 <= inputs.dropout <= 1:
        raise ValueError(f"attention: expected a probability for dropout, got {inputs.dropout}")
    if inputs.dropout > 0:
        if inputs.seed is None:
            raise ValueError("attention: dropout needs a seed")
        expect("attention", "seed", inputs.seed, (1,), source, torch.int64)


def check_backward(grad_out: Tensor, out: Tensor, softmax: Tensor, inputs: AttentionInputs) -> None:
    """Check the arguments of `molgcn::attention_backward` besides its inputs, which :func:`check` has checked.

    Raises:
        ValueError: If an argument does not fit. The message names the first one.
    """
    rows = inputs.num_targets
    for name, tensor in {"grad_out": grad_out, "out": out}.items():
        expect("attention_backward", name, tensor, (rows, inputs.width), inputs.source)
    expect("attention_backward", "softmax", softmax, (rows, inputs.heads, 2), inputs.source)


@register_fake("molgcn::attention")
def empty_outputs(*args: Any) -> tuple[Tensor, Tensor]:
    """Return uninitialised sums [N, H * C], and each softmax's largest score and the reciprocal of its sum [N, H, 2]."""
    inputs = AttentionInputs(*args)
    source, rows = inputs.source, inputs.num_targets
    return source.new_empty(rows, inputs.width), source.new_empty(rows, inputs.heads, 2)


@register_fake("molgcn::attention_backward")
def empty_gradients(grad_out: Tensor, out: Tensor, softmax: Tensor, *args: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return uninitialised gradients of source, targets, edges and att, each empty if its input is None."""
    inputs = AttentionInputs(*args)
    others = (inputs.targets, inputs.edges, inputs.att)
    targets, edges, att = (inputs.source.new_empty((0,) if tensor is None else tensor.shape) for tensor in others)
    return inputs.source.new_empty(inputs.source.shape), targets, edges, att


def _gradients(
    backward: Callable[..., Any], grad_out: Tensor, outputs: tuple[Tensor, ...], wanted: list[bool], inputs: AttentionInputs
) -> tuple[Tensor, ...]:
    found: tuple[Tensor, ...] = backward(grad_out, *outputs, *inputs)
    return found


def _reference() -> Callable[[AttentionInputs], Tensor]:
    from molgcn.ops.attention_reference import attention_reference

    return attention_reference


OPERATOR = Operator("molgcn::attention", AttentionInputs, 6, ("source", "targets", "edges", "att"), _gradients, _reference)
