r"""`molgcn::attention`: graph attention on any graph, GAT's and GATv2's, forward and backward.

The operator takes the edge list as users have it, in any order; each device registers an implementation of `molgcn::attention` and
`molgcn::attention_backward`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from molgcn.ops.derivative import Derivative
from molgcn.ops.expect import expect

DTYPES = (torch.float32, torch.float64)


class AttentionInputs(NamedTuple):
    r"""Arguments of :func:`attention`, in the order of its schema; M sources, N targets, E edges, H heads of C channels.

    Scores are GAT's, :math:`\mathrm{leaky}(s_j + t_i + e_{ij})` of one number a head, or with `att` GATv2's,
    :math:`a \cdot \mathrm{leaky}(x_j + t_i + e_{ij})` of all channels: K is H or H * C.

    Attributes:
        source: float32 or float64 [M, at least H * C]: what is summed, x, head by head. GAT's scores s of the sources follow, H columns.
            Without `targets` t follows these, K columns. What follows then is not read.
        targets: t [N, K], or None where nodes are sources and targets alike, M = N.
        edges: e [E + num_loops, K], the added self-loops' last, or None.
        att: a [H, C], or None.
        edge_index: int64 [2, E], source and target of every edge, in any order; several edges between two nodes all count.
        seed: int64 [1], of dropout; None without.
        num_targets: N.
        heads: H.
        channels: C.
        num_loops: so many first nodes get an edge to themselves, in place of those that they have; 0 leaves the edges as they are.
        reverse: edges go from `edge_index[1]` to `edge_index[0]`: PyG's flow "target_to_source".
        negative_slope: of the leaky relu.
        dropout: probability that a weight is dropped.
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
        """H * C."""
        return self.heads * self.channels

    @property
    def num_scores(self) -> int:
        """K."""
        return self.heads if self.att is None else self.width

    @property
    def place_of_targets(self) -> int:
        """The first column of t in `source`, where it is there."""
        return self.width + (self.heads if self.att is None else 0)

    @property
    def num_entries(self) -> int:
        """E + num_loops."""
        return self.edge_index.shape[1] + self.num_loops


_ARGUMENTS = (
    "Tensor source, Tensor? targets, Tensor? edges, Tensor? att, Tensor edge_index, Tensor? seed, SymInt num_targets, int heads, "
    "int channels, SymInt num_loops, bool reverse, float negative_slope, float dropout"
)
# Of a CUDA graph that torch.compile makes by itself edge_index would be a copy, whose order is not remembered
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.cudagraph_unsafe)
torch.library.define("molgcn::attention", f"({_ARGUMENTS}) -> (Tensor out, Tensor softmax)", tags=_TAGS)
torch.library.define(
    "molgcn::attention_backward",
    f"(Tensor grad_out, Tensor out, Tensor softmax, {_ARGUMENTS}) -> "
    "(Tensor grad_source, Tensor grad_targets, Tensor grad_edges, Tensor grad_att)",
    tags=_TAGS,
)


def attention(inputs: AttentionInputs) -> Tensor:
    r"""Return the weighted sums of the neighbours' features, [N, H * C].

    .. math::
        \sum_j \alpha_{ij} x_j, \qquad \alpha_{i \cdot} = \mathrm{softmax}_j(\text{score}_{ij})

    Nothing of size E x H x C is made, but for the gradient of GATv2's `edges`, which has that size itself. A node without edges gets
    zeros. Sources: Veličković et al., ICLR 2018; Brody et al., ICLR 2022.

    Args:
        inputs: see :class:`AttentionInputs`; differentiable in source, targets, edges and att, as often as wanted.

    Raises:
        ValueError: for tensors whose shape, dtype or device does not fit.
        IndexError: for an edge whose node is not there.
    """
    return torch.ops.molgcn.attention(*inputs)[0]


def check(inputs: AttentionInputs) -> None:
    """Check shapes, dtypes and devices; the values of edge_index are left to the implementations.

    Raises:
        ValueError: naming the first argument that does not fit.
    """
    source, edge_index, scores = inputs.source, inputs.edge_index, inputs.num_scores
    together = inputs.targets is None
    columns = inputs.place_of_targets + (scores if together else 0)
    if source.dim() != 2 or source.shape[1] < columns or (together and source.shape[0] != inputs.num_targets):
        rows = inputs.num_targets if together else "M"
        raise ValueError(f"attention: expected source [{rows}, at least {columns}], got {list(source.shape)}")
    if source.dtype not in DTYPES:
        raise ValueError(f"attention: computes in float32 or float64, not {source.dtype}")
    if edge_index.dim() != 2 or edge_index.shape[0] != 2 or edge_index.dtype != torch.int64 or edge_index.device != source.device:
        raise ValueError(
            f"attention: expected edge_index int64 [2, E] on {source.device}, got {edge_index.dtype} {list(edge_index.shape)} on "
            f"{edge_index.device}"
        )
    if not 0 <= inputs.num_loops <= min(source.shape[0], inputs.num_targets):
        raise ValueError(f"attention: {inputs.num_loops} self-loops of {source.shape[0]} sources and {inputs.num_targets} targets")
    shapes = {
        "targets": (inputs.num_targets, scores),
        "edges": (inputs.num_entries, scores),
        "att": (inputs.heads, inputs.channels),
    }
    for name, shape in shapes.items():
        if (tensor := getattr(inputs, name)) is not None:
            expect("attention", name, tensor, shape, source)
    if inputs.dropout > 0:
        if inputs.seed is None:
            raise ValueError("attention: dropout needs a seed")
        expect("attention", "seed", inputs.seed, (1,), source, torch.int64)


@torch.library.register_fake("molgcn::attention")
def empty_outputs(*args: Any) -> tuple[Tensor, Tensor]:
    """Uninitialised sums [N, H * C], and of every softmax its largest score and the inverse of its sum, [N, H, 2]."""
    inputs = AttentionInputs(*args)
    source, rows = inputs.source, inputs.num_targets
    return source.new_empty(rows, inputs.width), source.new_empty(rows, inputs.heads, 2)


@torch.library.register_fake("molgcn::attention_backward")
def empty_gradients(grad_out: Tensor, out: Tensor, softmax: Tensor, *args: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Uninitialised gradients of source, targets, edges and att; empty for what is not there."""
    inputs = AttentionInputs(*args)
    others = (inputs.targets, inputs.edges, inputs.att)
    targets, edges, att = (inputs.source.new_empty((0,) if tensor is None else tensor.shape) for tensor in others)
    return inputs.source.new_empty(inputs.source.shape), targets, edges, att


def _gradients(grad_out: Tensor, outputs: tuple[Tensor, ...], wanted: list[bool], inputs: AttentionInputs) -> tuple[Tensor, ...]:
    found: tuple[Tensor, ...] = torch.ops.molgcn.attention_backward.default(grad_out, *outputs, *inputs)
    return found


def _reference() -> Callable[[AttentionInputs], Tensor]:
    from molgcn.ops.attention_reference import attention_reference

    return attention_reference


Derivative("molgcn::attention", AttentionInputs, 6, ("source", "targets", "edges", "att"), _gradients, _reference).register()
