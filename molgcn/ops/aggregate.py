r"""`molgcn::aggregate`: sums, means or maxima over the incoming edges of any graph's nodes, forward and backward.

The edge list may be in any order. Each device registers an implementation of `molgcn::aggregate` and `molgcn::aggregate_backward`, and
sorts an edge list once (:class:`molgcn.ops.edge_graph.EdgeGraph`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from molgcn.ops.edge_graph import EdgeGraph
from molgcn.ops.expect import expect, expect_edges
from molgcn.ops.fake import register_fake
from molgcn.ops.operator import Operator

REDUCTIONS = ("sum", "mean", "max")
STRATEGIES = ("auto", "vertex", "neighbor_group", "edge")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


class AggregateInputs(NamedTuple):
    """The arguments of the operator, in the order of its schema: M sources, N targets, E edges, D channels; see :func:`aggregate`.

    Attributes:
        x: The features [M, D].
        edge_index: The source and target of every edge, int64 [2, E].
        edge_weight: The edges' weights [E, K], or None. K divides D; each weight applies to D / K consecutive channels.
        own_weight: The weight [1] of a node's own features, which are added to its sum or mean, or None. It needs M = N.
        num_dst: The number of targets, N.
        reduce: One of :data:`REDUCTIONS`.
        strategy: One of :data:`STRATEGIES`.
        deterministic: Whether atomic additions are forbidden.
        reverse: Whether edges go from `edge_index[1]` to `edge_index[0]`.
        group_size: The number of edges in a neighbour group; 0 lets the operator choose.
        dimension_workers: The number of threads that share an edge's channels; 0 lets the operator choose.
    """

    x: Tensor
    edge_index: Tensor
    edge_weight: Tensor | None
    own_weight: Tensor | None
    num_dst: int
    reduce: str = "sum"
    strategy: str = "auto"
    deterministic: bool = True
    reverse: bool = False
    group_size: int = 0
    dimension_workers: int = 0

    @property
    def channels_per_weight(self) -> int:
        """The number of channels that share a weight, D / K; 0 without weights."""
        return 0 if self.edge_weight is None else self.x.shape[1] // max(self.edge_weight.shape[1], 1)

    @property
    def graph(self) -> EdgeGraph:
        """The edges, sorted by target."""
        return EdgeGraph.of(self.edge_index, self.x.shape[0], self.num_dst, self.reverse)

    @property
    def gradients_need_x(self) -> bool:
        """Whether gradients depend on the values of x. If not, backward is given only its shape."""
        return self.edge_weight is not None or self.own_weight is not None or self.reduce == "max"

    def contiguous(self, with_x: bool = True) -> AggregateInputs:
        """Return the inputs with contiguous tensors. Only edge_index stays as it is, since it is recognised by its identity."""
        x = self.x.contiguous() if with_x else self.x
        weight = None if self.edge_weight is None else self.edge_weight.contiguous()
        return self if x is self.x and weight is self.edge_weight else self._replace(x=x, edge_weight=weight)


_ARGUMENTS = (
    "Tensor x, Tensor edge_index, Tensor? edge_weight, Tensor? own_weight, SymInt num_dst, str reduce, str strategy, bool deterministic, "
    "bool reverse, int group_size, int dimension_workers"
)
# In a CUDA graph that torch.compile makes by itself, edge_index would be a copy, for which no sorted edges are remembered
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.cudagraph_unsafe)
torch.library.define("molgcn::aggregate", f"({_ARGUMENTS}) -> Tensor", tags=_TAGS)
torch.library.define(
    "molgcn::aggregate_backward",
    f"(Tensor grad_out, Tensor? out, bool[] wanted, {_ARGUMENTS}) -> (Tensor grad_x, Tensor grad_edge_weight, Tensor grad_own_weight)",
    tags=_TAGS,
)


def aggregate(
    x: Tensor,
    edge_index: Tensor,
    edge_weight: Tensor | None = None,
    reduce: str = "sum",
    strategy: str = "auto",
    *,
    num_nodes: int | None = None,
    own_weight: Tensor | None = None,
    deterministic: bool = True,
    reverse: bool = False,
    group_size: int = 0,
    dimension_workers: int = 0,
) -> Tensor:
    r"""Return the sum, mean or maximum of the weighted source features over every node's incoming edges.

    .. math::
        y_i = \bigoplus_{e = (j, i)} w_e \odot x_j

    No tensor of size [E, D] is made, forward or backward. Sums are taken in float32, or in float64 for float64 inputs. A node without
    incoming edges gets 0. Where several neighbours are the maximum, they share the gradient of `max` equally, as in PyTorch's
    `scatter_reduce("amax")`. PyG uses that one unless torch_scatter is installed, which gives the gradient to one of them. If the maximum
    is 0, the zeros that the result is initialised with take a share of the gradient, which is lost, as in `scatter_reduce`.

    The edges are sorted when `edge_index` is first seen. Later calls with the very same tensor reuse this until the tensor is written to
    or freed. It takes 8 bytes per edge, and 8 more if gradients are wanted. Calls with a tensor seen before can be captured in CUDA
    graphs. Second derivatives are computed by plain PyTorch, which does make tensors of size [E, D].

    On CUDA there are three strategies. In `vertex`, a group of threads reads all neighbours of a node. `neighbor_group` cuts long lists of
    neighbours into groups and adds the groups' sums in order, so that one node with a million neighbours does not delay the others. `edge`
    adds every edge's message atomically. The CPU has a single algorithm, whatever the strategy.

    Args:
        x: The source features [M, D] or [M, K, C], in float32, float64, bfloat16 or float16.
        edge_index: The source and target of every edge, int64 [2, E], in any order. Several edges between two nodes all count.
        edge_weight: The edges' weights. None means ones. [E] has one for each edge. [E, K] has one for each of K heads, where x is
            [M, K, C], or [M, K * C] with the heads side by side. [E, D] has one for each channel.
        reduce: "sum", "mean" over the number of edges, or "max".
        strategy: "auto", "vertex", "neighbor_group" or "edge". "auto" chooses a deterministic one.
        num_nodes: The number of targets, N; by default M.
        own_weight: The weight [1] of a node's own features, which are added to its sum or mean: :math:`y_i + w x_i`. GIN's is
            :math:`1 + \epsilon`. It needs M = N.
        deterministic: Whether every run gives the same bits. False lets `neighbor_group` add its groups' sums atomically, and allows
            `edge`.
        reverse: Whether edges go from `edge_index[1]` to `edge_index[0]`: PyG's flow "target_to_source".
        group_size: The number of edges in a neighbour group; 0, the default, lets the operator choose.
        dimension_workers: The number of threads that share an edge's channels, at most 32; 0, the default, lets the operator choose.

    Returns:
        The result [N, D] or [N, K, C], in the promoted dtype of x and edge_weight.

    Raises:
        ValueError: If an argument does not fit. The message names it.
        IndexError: If edge_index names a node that does not exist. The message names the node.
        UserError: If there are more nodes or edges than 32 bits can count, or if edge_index is new while a CUDA graph is captured.
    """
    shape = x.shape[1:]
    if x.dim() not in (2, 3):
        raise ValueError(f"aggregate: expected x [M, D] or [M, K, C], got {list(x.shape)}")
    if edge_weight is not None:
        dtype = torch.promote_types(x.dtype, edge_weight.dtype)
        x, edge_weight = x.to(dtype), _flat_weight(edge_weight, shape).to(dtype)
    if own_weight is not None:
        own_weight = own_weight.to(x.dtype)
    num_dst = x.shape[0] if num_nodes is None else num_nodes
    flat = x if x.dim() == 2 else x.flatten(1)
    options = (reduce, strategy, deterministic, reverse, group_size, dimension_workers)
    out = OPERATOR(AggregateInputs(flat, edge_index, edge_weight, own_weight, num_dst, *options))
    return out if x.dim() == 2 else out.unflatten(1, shape)


def _flat_weight(edge_weight: Tensor, shape: torch.Size) -> Tensor:
    """Return the weights as [E, K], where `shape` is the shape of one node's features."""
    if edge_weight.dim() == 1:
        return edge_weight[:, None]
    if edge_weight.dim() == 3 and edge_weight.shape[1:] == shape:
        return edge_weight.flatten(1)
    if edge_weight.dim() == 2 and (edge_weight.shape[1] == shape[0] or (len(shape) == 1 and edge_weight.shape[1] > 0)):
        return edge_weight
    as_features = ", ".join(map(str, shape))
    raise ValueError(f"aggregate: expected edge_weight [E], [E, {shape[0]}] or [E, {as_features}], got {list(edge_weight.shape)}")


def check(inputs: AggregateInputs) -> None:
    """Check shapes, dtypes, devices and options. The implementations check the values of edge_index.

    Raises:
        ValueError: If an argument does not fit. The message names the first one.
    """
    x, edge_index, edge_weight = inputs.x, inputs.edge_index, inputs.edge_weight
    if x.dim() != 2 or x.dtype not in DTYPES:
        raise ValueError(f"aggregate: expected x [M, D] in float32, float64, bfloat16 or float16, got {x.dtype} {list(x.shape)}")
    expect_edges("aggregate", edge_index, x)
    if edge_weight is not None:
        expect("aggregate", "edge_weight", edge_weight, (edge_index.shape[1], *edge_weight.shape[1:2]), x)
        channels, weights = x.shape[1], edge_weight.shape[1]
        if channels % weights if weights else channels:
            raise ValueError(f"aggregate: {weights} weights of an edge do not divide the {channels} channels of x")
    if inputs.own_weight is not None:
        expect("aggregate", "own_weight", inputs.own_weight, (1,), x)
        if x.shape[0] != inputs.num_dst or inputs.reduce == "max" or inputs.strategy == "edge" or not inputs.deterministic:
            raise ValueError('aggregate: own_weight needs as many sources as targets, reduce="sum" or "mean", and deterministic=True')
    for name, value, allowed in (("reduce", inputs.reduce, REDUCTIONS), ("strategy", inputs.strategy, STRATEGIES)):
        if value not in allowed:
            raise ValueError(f"aggregate: {name}={value!r} is none of {', '.join(allowed)}")
    if inputs.strategy == "edge" and (inputs.deterministic or inputs.reduce == "max"):
        raise ValueError('aggregate: strategy="edge" adds atomically: it needs deterministic=False, and reduce="sum" or "mean"')
    if inputs.num_dst < 0 or inputs.group_size < 0 or not 0 <= inputs.dimension_workers <= 32:
        raise ValueError("aggregate: num_nodes and group_size must not be negative, and dimension_workers must lie in 0 .. 32")


def check_backward(inputs: AggregateInputs, grad_out: Tensor, out: Tensor | None, wanted: list[bool]) -> None:
    """Check the arguments of `molgcn::aggregate_backward` besides its inputs, which :func:`check` has checked.

    Raises:
        ValueError: If an argument does not fit. The message names the first one.
    """
    shape = (inputs.num_dst, inputs.x.shape[1])
    expect("aggregate_backward", "grad_out", grad_out, shape, inputs.x)
    if (out is None) == (inputs.reduce == "max") or len(wanted) != 3:
        raise ValueError("aggregate_backward: expected the result of forward for max, and only then, and wanted for x and both weights")
    if out is not None:
        expect("aggregate_backward", "out", out, shape, inputs.x)


@register_fake("molgcn::aggregate")
def empty_output(*args: Any) -> Tensor:
    """Return an uninitialised output [N, D]."""
    inputs = AggregateInputs(*args)
    return inputs.x.new_empty(inputs.num_dst, inputs.x.shape[1])


@register_fake("molgcn::aggregate_backward")
def empty_gradients(grad_out: Tensor, out: Tensor | None, wanted: list[bool], *args: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return uninitialised gradients of x, edge_weight and own_weight, each empty if it is not wanted."""
    inputs = AggregateInputs(*args)
    given = zip((inputs.x, inputs.edge_weight, inputs.own_weight), wanted, strict=True)
    grad_x, grad_weight, grad_own = (inputs.x.new_empty(of.shape if want and of is not None else (0,)) for of, want in given)
    return grad_x, grad_weight, grad_own


def own_gradient(inputs: AggregateInputs, grad_out: Tensor, wanted: list[bool]) -> Tensor:
    """Return the gradient of own_weight, empty if it is not wanted."""
    return (grad_out * inputs.x).sum().view(1) if wanted[2] and inputs.own_weight is not None else grad_out.new_empty(0)


def _kept(outputs: tuple[Tensor, ...], inputs: AggregateInputs) -> tuple[tuple[Tensor, ...], AggregateInputs]:
    """Return what backward needs: the output for `max`, and the inputs, with only the shape of x if its values are not needed."""
    if inputs.gradients_need_x:
        return (outputs if inputs.reduce == "max" else ()), inputs
    return (), inputs._replace(x=inputs.x.new_empty_strided(inputs.x.shape, (0, 0)))


def _gradients(
    backward: Callable[..., Any], grad_out: Tensor, outputs: tuple[Tensor, ...], wanted: list[bool], inputs: AggregateInputs
) -> Sequence[Tensor]:
    found: Sequence[Tensor] = backward(grad_out, outputs[0] if outputs else None, wanted, *inputs)
    return found


def _reference() -> Callable[[AggregateInputs], Tensor]:
    from molgcn.ops.aggregate_reference import aggregate_reference

    return aggregate_reference


OPERATOR = Operator("molgcn::aggregate", AggregateInputs, 4, ("x", "edge_weight", "own_weight"), _gradients, _reference, _kept)
