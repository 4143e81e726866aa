"""`molgcn::gcn_conv` on CUDA, by PyTorch's matrix products and the kernels of `molgcn::aggregate`. Import this module to register it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from molgcn.ops import aggregate_cuda
from molgcn.ops.aggregate import AggregateInputs
from molgcn.ops.gcn_conv import OPERATOR, ConvInputs, check, check_backward
from molgcn.ops.precision import without_autocast
from molgcn.ops.remembered import alike, remembered


def forward(*args: Any) -> Tensor:
    """Compute the operator's output; see :mod:`molgcn.ops.gcn_conv`."""
    inputs, entries = _prepared(args)
    weight, bias = inputs.weight, inputs.bias
    with without_autocast(inputs.x.device.type):
        if weight is not None and weight.shape[0] >= weight.shape[1]:
            sums = entries.aggregate(inputs.x)
            return sums @ weight.T if bias is None else torch.addmm(bias, sums, weight.T)
        out = entries.aggregate(inputs.x if weight is None else inputs.x @ weight.T)
        return out if bias is None else out.add_(bias)


def backward(grad_out: Tensor, wanted: list[bool], *args: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute the gradients; see :mod:`molgcn.ops.gcn_conv`."""
    inputs, entries = _prepared(args)
    x, weight = inputs.x, inputs.weight
    check_backward(grad_out, wanted, inputs)
    found: list[Tensor | None] = [None] * 4
    with without_autocast(x.device.type):
        if wanted[0] or wanted[1]:
            sums = entries.aggregate_back(grad_out)
            if wanted[0]:
                found[0] = sums if weight is None else sums @ weight
            if wanted[1]:
                found[1] = sums.T @ x
        if wanted[2]:
            found[2] = grad_out.sum(0)
        if wanted[3]:
            rows = x if weight is None else x @ weight.T
            found[3] = entries.of_edges(entries.of_entries(rows, grad_out))
    grad_x, grad_weight, grad_bias, grad_edge_weight = (x.new_empty(0) if gradient is None else gradient for gradient in found)
    return grad_x, grad_weight, grad_bias, grad_edge_weight


@dataclass
class _List:
    """The entries of Â in the order of the edge list, followed by the added self-loops: N nodes, E edges.

    Attributes:
        edges: The nodes of every entry, int64 [2, E or E + N].
        own: Whether each edge is a self-loop, bool [E].
        last: The index of each node's last self-loop, int64 [N]; E if it has none.
    """

    edges: Tensor
    own: Tensor
    last: Tensor

    @classmethod
    def of(cls, edge_index: Tensor, num_nodes: int, add_self_loops: bool) -> _List:
        """Return the entries of an edge list. Those with added self-loops are remembered with the list."""
        if add_self_loops:
            return remembered(edge_index, (cls, num_nodes), lambda: cls._looped(edge_index.detach(), num_nodes))
        return cls(edge_index, edge_index[0] == edge_index[1], edge_index[0, :0])

    @classmethod
    def _looped(cls, edge_index: Tensor, num_nodes: int) -> _List:
        num_edges, device = edge_index.shape[1], edge_index.device
        own, nodes = edge_index[0] == edge_index[1], torch.arange(num_nodes, device=device)
        edges = torch.arange(num_edges, device=device).masked_fill(~own, -1)
        last = edges.new_full((num_nodes,), -1).scatter_reduce(0, edge_index[1], edges, "amax")
        return cls(torch.cat([edge_index, nodes.expand(2, -1)], dim=1), own, last.masked_fill(last < 0, num_edges))


@dataclass
class _Entries:
    """The entries of Â with their weights.

    Attributes:
        list: The entries.
        raw: The weights before normalisation [entries]. Edges that added self-loops replace weigh 0.
        scale: The nodes' D^-1/2 [N], or None without normalisation.
        reverse: Whether the sources are `list.edges[1]`.
    """

    list: _List
    raw: Tensor
    scale: Tensor | None
    reverse: bool

    @classmethod
    def of(cls, inputs: ConvInputs) -> _Entries:
        """Return the entries of a call, remembered with the edge list if all edges weigh 1."""
        num_nodes, edge_weight = inputs.x.shape[0], inputs.edge_weight
        if edge_weight is not None:
            return cls._weighted(inputs, edge_weight)
        key = (cls, num_nodes, inputs.x.dtype, *inputs[5:])
        return remembered(inputs.edge_index, key, lambda: cls._weighted(inputs, inputs.x.new_ones(inputs.edge_index.shape[1])))

    @classmethod
    def _weighted(cls, inputs: ConvInputs, edge_weight: Tensor) -> _Entries:
        num_nodes = inputs.x.shape[0]
        entries = _List.of(inputs.edge_index, num_nodes, inputs.add_self_loops)
        raw = edge_weight
        if inputs.add_self_loops:
            with_added = torch.cat([edge_weight, edge_weight.new_full((1,), inputs.loop_weight)])
            raw = torch.cat([edge_weight.masked_fill(entries.own, 0), with_added[entries.last]])
        made = cls(entries, raw, None, inputs.reverse)
        if inputs.normalize:
            degree = made._sum_at_targets(raw, num_nodes)
            made.scale = degree.pow(-0.5).masked_fill_(degree == 0, 0)
        return made

    @cached_property
    def weight(self) -> Tensor:
        """The weight of every entry of Â [entries]."""
        if self.scale is None:
            return self.raw
        return self.scale[self._sources] * self.raw * self.scale[self._targets]

    @property
    def _sources(self) -> Tensor:
        return self.list.edges[int(self.reverse)]

    @property
    def _targets(self) -> Tensor:
        return self.list.edges[1 - int(self.reverse)]

    def aggregate(self, rows: Tensor) -> Tensor:
        """Return the product of Â and rows [N, D]."""
        return self._product(rows).forward(rows.contiguous(), self._column)

    def aggregate_back(self, grad: Tensor) -> Tensor:
        """Return the product of the transposed Â and rows [N, D]."""
        return self._product(grad).transposed(grad.contiguous(), self._column)

    @cached_property
    def _column(self) -> Tensor:
        """The weight of every entry as a column [entries, 1]."""
        return self.weight[:, None]

    @cached_property
    def _products(self) -> dict[int, aggregate_cuda.RowCall]:
        """The products of Â and rows, by the rows' width."""
        return {}

    def _product(self, rows: Tensor) -> aggregate_cuda.RowCall:
        width = rows.shape[1]
        found = self._products.get(width)
        return found or self._products.setdefault(width, aggregate_cuda.RowCall.of(self._inputs(rows, self.weight, self.reverse)))

    def of_entries(self, rows: Tensor, grad: Tensor) -> Tensor:
        """Return the gradient of every entry's weight, given the gradient `grad` of the product of Â and `rows`."""
        return aggregate_cuda.backward(grad, None, [False, True, False], *self._inputs(rows, self.weight, self.reverse))[1][:, 0]

    def of_edges(self, grad: Tensor) -> Tensor:
        """Return the gradient of the edges' weights, given the gradient g of every entry.

        An entry with weight w from column c to row r is v = s_c w s_r with s = d^-1/2. Then dL/dw = g s_c s_r + dL/dd_r, where
        dL/dd = -s^3 / 2 (sum over the row of g w s_c + sum over the column of g w s_r). A self-loop is in both sums. Its own part,
        g s^2 - g s^4 (sum of the self-loops' w), is computed as g s^4 (sum of the other entries' w). So nothing cancels, and the gradient
        is exactly 0 at a node that has only self-loops.
        """
        own = grad
        if self.scale is not None:
            source, target, num_nodes = self._sources, self._targets, self.scale.shape[0]
            loop, s = source == target, self.scale
            weighed = grad * self.raw
            between, around = weighed.masked_fill(loop, 0), weighed.masked_fill(~loop, 0)
            bonds = self._sum_at_targets(between * s[source], num_nodes) + self._sum_at_targets(between * s[target], num_nodes, back=True)
            others, loops = self._sum_at_targets(self.raw.masked_fill(loop, 0), num_nodes), self._sum_at_targets(around, num_nodes)
            squared = s.square()
            of_loop, of_bond = (
                grad * (squared * squared * others)[target],
                grad * s[source] * s[target] - (squared * squared * loops)[target],
            )
            own = torch.where(loop, of_loop, of_bond) - (0.5 * s * squared * bonds)[target]
        num_edges = self.list.own.shape[0]
        if own.shape[0] == num_edges:
            return own
        of_last = own.new_zeros(num_edges + 1).index_copy(0, self.list.last, own[num_edges:])[:-1]
        return torch.where(self.list.own, of_last, own[:num_edges])

    def _sum_at_targets(self, values: Tensor, num_nodes: int, back: bool = False) -> Tensor:
        """Return the sums [N] of the entries' values at their targets, or with `back` at their sources."""
        ones = values.new_ones(num_nodes, 1)
        return aggregate_cuda.forward(*self._inputs(ones, values, self.reverse != back))[:, 0]

    def _inputs(self, rows: Tensor, weight: Tensor, reverse: bool) -> AggregateInputs:
        return AggregateInputs(rows, self.list.edges, weight[:, None], None, rows.shape[0], reverse=reverse)


def _prepared(args: tuple) -> tuple[ConvInputs, _Entries]:
    """Return the checked inputs and their entries. Calls with inputs that are :func:`alike` are checked once."""
    inputs = ConvInputs(*args)
    remembered(inputs.edge_index, (check, alike(inputs)), lambda: check(inputs))
    edge_weight = None if inputs.edge_weight is None else inputs.edge_weight.contiguous()
    with without_autocast(inputs.x.device.type):
        return inputs, _Entries.of(inputs._replace(edge_weight=edge_weight))


OPERATOR.implement("CUDA", forward, backward)
