"""What steps gather, expand, gate and attend along bonds, in plain PyTorch."""

from __future__ import annotations

import torch
from gcn_reference import normalised_edges
from torch import Tensor
from torch.nn import functional as F

from molgcn.nn.layers.propagate import max_incoming, mean_incoming, reverse_bonds, sum_incoming
from molgcn.ops.layer_network.passes import Pass
from molgcn.ops.layer_network.steps import GATE_EPSILON, Attend, AverageDirections, EdgeStep, Expand, Gather, SumIncoming
from molgcn.ops.philox import keep_mask


def edges_of(run: Pass) -> Tensor:
    """Return the source and target of every directed bond, int64 [2, E]."""
    rowptr, col = run.graph.rowptr.long(), run.graph.col.long()
    return torch.stack([col, torch.arange(rowptr.shape[0] - 1, device=col.device).repeat_interleave(rowptr.diff())])


def expanded(run: Pass, step: Expand, source: Tensor, bonds: Tensor | None = None, target: Tensor | None = None) -> Tensor:
    edges = edges_of(run)
    out = source[edges[0]] if target is None else source[edges[0]] + target[edges[1]]
    return out if step.bonds is None or bonds is None else out + of_bonds(run, step.bonds, bonds)


def of_edges(run: Pass, step: EdgeStep, source: Tensor) -> Tensor:
    edges, num_atoms = edges_of(run), run.graph.num_nodes
    reverse = source[reverse_bonds(edges, num_atoms)]
    if isinstance(step, AverageDirections):
        return (source + reverse) / 2
    incoming = sum_incoming(source, edges[1], num_atoms)
    return incoming if isinstance(step, SumIncoming) else incoming[edges[0]] - reverse


def attended(
    run: Pass,
    step: Attend,
    source: Tensor,
    att: Tensor,
    target: Tensor | None = None,
    att_target: Tensor | None = None,
    bonds: Tensor | None = None,
    att_bonds: Tensor | None = None,
    bias: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the value of a step that attends, and each softmax's largest score and the reciprocal of its sum, in turn."""
    graph, edges = run.graph, edges_of(run)
    number = torch.arange(edges.shape[1], device=edges.device)[edges[0] != edges[1]]
    edges, atoms = edges[:, number], torch.arange(source.shape[0], device=edges.device)
    of, by = torch.cat([edges[0], atoms]), torch.cat([edges[1], atoms])
    heads = step.heads
    h = source.view(source.shape[0], heads, -1)
    if bonds is not None:
        rows = (bonds if graph.code is None else bonds[graph.code.long()])[number]
        bonds = torch.cat([rows, mean_incoming(rows, edges[1], source.shape[0])]).view(of.shape[0], heads, -1)
    if target is not None:
        pre = h[of] + target.view_as(h)[by] + (0 if bonds is None else bonds)
        score = (F.leaky_relu(pre, step.slope) * att).sum(-1)
    else:
        pre = (h * att).sum(-1)[of] + (h * att_target).sum(-1)[by] + (0 if bonds is None else (bonds * att_bonds).sum(-1))
        score = F.leaky_relu(pre, step.slope)
    largest = max_incoming(score, by, source.shape[0])
    weight = (score - largest[by]).exp()
    scale = 1 / sum_incoming(weight, by, source.shape[0])
    weight = weight * scale[by]
    if step.dropout is not None:
        seed, rate = run.call.seed, step.rate
        masks = [
            keep_mask(seed, step.dropout, count, heads, rate, kind=kind) for kind, count in enumerate((graph.col.shape[0], h.shape[0]))
        ]
        weight = weight * torch.cat([masks[0][number], masks[1]]) / (1 - rate)
    out = sum_incoming(weight[:, :, None] * h[of], by, source.shape[0])
    out = out.flatten(1) if step.concat else out.mean(1)
    return out if bias is None else out + bias, torch.stack([largest, scale], dim=-1).flatten(1)


def of_bonds(run: Pass, value: int, source: Tensor) -> Tensor:
    """Return the row of every directed bond of a value with rows of bonds or edges."""
    code = run.graph.code if run.program.values[value].rows == "bonds" else None
    return source if code is None else source[code.long()]


def gated(run: Pass, source: Tensor, gates: Tensor) -> Tensor:
    (start, end), count = edges_of(run), run.graph.num_nodes
    weights = gates.sigmoid()
    return sum_incoming(weights * source[start], end, count) / (sum_incoming(weights, end, count) + GATE_EPSILON)


def gathered(
    run: Pass, step: Gather, source: Tensor, bonds: Tensor | None = None, eps: Tensor | None = None, bias: Tensor | None = None
) -> Tensor:
    graph, size = run.graph, source.shape[0]
    from_atom, to_atom, weight = normalised_edges(graph.rowptr, graph.col, step.aggr == "gcn_loops", source.dtype)
    message = source[from_atom]
    if bonds is not None:
        message = (message + (bonds if graph.code is None else bonds[graph.code.long()])).relu()
    message = weight[:, None] * message if step.aggr.startswith("gcn") else message
    index = to_atom[:, None].expand_as(message)
    out = torch.zeros_like(source)
    out = out.scatter_reduce(0, index, message, "amax", include_self=False) if step.aggr == "max" else out.index_add(0, to_atom, message)
    if step.aggr == "mean":
        out = out / torch.bincount(to_atom, minlength=size).clamp(min=1)[:, None]
    out = out if eps is None else out + (1 + eps) * source
    return out if bias is None else out + bias
