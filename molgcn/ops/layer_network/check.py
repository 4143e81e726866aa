"""Check the arguments of `molgcn::layer_network`. Every implementation does, since kernels read and write by address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from molgcn.config.strategies import STRATEGIES
from molgcn.ops.expect import expect, expect_countable, fit
from molgcn.ops.graph import Graph
from molgcn.ops.layer_network.call import PRECISIONS, LayerNetworkCall

_NAME = "layer_network"


def check(call: LayerNetworkCall) -> None:
    """Check the shapes, dtypes, devices and names of the forward pass. The implementations check the values of indices.

    Raises:
        ValueError: If an argument does not fit. The message names the first one.
    """
    _check(call, call.program.statistics)


def check_backward(grad_pooled: Tensor | None, saved: Tensor, saved_numbers: int, call: LayerNetworkCall) -> None:
    """Check the arguments of the backward pass. With batch statistics it takes no running statistics.

    Args:
        grad_pooled: The gradient of the pooled rows [B, H], with H columns for each value that is pooled, or of the head's result. None
            where that is a loss.
        saved: The tensor that the forward pass has saved.
        saved_numbers: The size that it must have.
        call: The arguments of the forward pass.

    Raises:
        ValueError: If an argument does not fit. The message names the first one.
    """
    _check(call, {} if call.batch_statistics else call.program.statistics)
    if not call.options.save_for_backward:
        raise ValueError(f"{_NAME}: the backward pass needs save_for_backward=True; run the forward pass with it too")
    expect(_NAME, "saved", saved, (saved_numbers,), call.graph.x)
    if grad_pooled is not None:
        expect(_NAME, "grad_pooled", grad_pooled, (call.num_pooled, call.widths[-1]), call.graph.x)


def _check(call: LayerNetworkCall, statistics: Mapping[str, tuple[int, ...]]) -> None:
    x, program = call.graph.x, call.program
    if x.dim() != 2 or x.shape[1] != program.in_channels:
        raise ValueError(f"{_NAME}: expected x of shape [N, {program.in_channels}], got {list(x.shape)}")
    for name, value, known in (("precision", call.options.precision, PRECISIONS), ("strategy", call.options.strategy, STRATEGIES)):
        if value not in known:
            raise ValueError(f"{_NAME}: {name}={value} is unknown. Expected one of {', '.join(known)}.")
    if program.drops and not call.options.training:
        raise ValueError(f"{_NAME}: a program with dropout is for training=True; build one without dropout")
    _check_tensors("parameters", call.parameters, program.parameters, x)
    _check_tensors("statistics", call.statistics, statistics, x)
    _check_graph(call.graph, program.edge_channels)
    expect(_NAME, "seed", call.seed, (1,), x, torch.int64)
    if call.graph.leaves_merged and program.drops:
        raise ValueError(f"{_NAME}: dropout={program.dropout} with merged leaves; give a batch whose leaves are not merged")
    if call.head:
        check_end(call)


def check_end(call: LayerNetworkCall) -> None:
    """Check the head and the objective of a call.

    Raises:
        ValueError: If a tensor does not fit. The message names the first one.
    """
    x = call.graph.x
    for weight, bias, wide in zip(call.head[::2], call.head[1::2], call.widths, strict=False):
        expect(_NAME, "the head's weight", weight, (*weight.shape[:1], wide), x)
        expect(_NAME, "the head's bias", bias, weight.shape[:1], x)
    if call.objective is None:
        return
    targets = call.widths[-1:]
    for name, tensor, shape in zip(
        ("target", "mean", "std"), call.objective[:3], ((call.graph.num_graphs, *targets), targets, targets), strict=True
    ):
        expect(_NAME, name, tensor, shape, x)
    expect_countable(_NAME, call.graph.num_graphs, *targets)


def _check_tensors(kind: str, tensors: Sequence[Tensor], shapes: Mapping[str, tuple[int, ...]], x: Tensor) -> None:
    if len(tensors) != len(shapes):
        raise ValueError(f"{_NAME}: expected {len(shapes)} {kind} ({', '.join(shapes) or 'none'}), got {len(tensors)}")
    if fit(tensors, shapes, x):
        return
    for tensor, (name, shape) in zip(tensors, shapes.items(), strict=True):
        expect(_NAME, name, tensor, shape, x)


def _check_graph(graph: Graph, edge_channels: int | None) -> None:
    x = graph.x
    for name in ("ptr", "rowptr", "col", "code", "tile_ptr", "counts"):
        index = getattr(graph, name)
        if index is not None and (index.dtype != torch.int32 or index.dim() != 1 or index.device != x.device):
            raise ValueError(f"{_NAME}: expected {name} to be one-dimensional int32 on {x.device}, got {index.dtype} on {index.device}")
    if graph.rowptr.shape[0] != x.shape[0] + 1:
        raise ValueError(f"{_NAME}: expected rowptr of shape [{x.shape[0] + 1}], got {list(graph.rowptr.shape)}")
    for name in ("ptr", "tile_ptr"):
        index = getattr(graph, name)
        if index is not None and index.shape[0] < 1:
            raise ValueError(f"{_NAME}: expected {name} to have at least one number, got none")
    if graph.counts is not None and graph.counts.shape[0] < 3:
        raise ValueError(f"{_NAME}: expected counts of molecules, atoms and bonds, got {graph.counts.shape[0]} numbers")
    if graph.tile_nodes < 1:
        raise ValueError(f"{_NAME}: tile_nodes={graph.tile_nodes}, expected at least 1")
    if edge_channels is None:
        return
    rows = graph.bonds.shape[0] if graph.bonds is not None and graph.bonds.dim() == 2 and graph.code is not None else graph.col.shape[0]
    if graph.bonds is None:
        raise ValueError(f"{_NAME}: expected bonds of shape [{rows}, {edge_channels}], got none")
    expect(_NAME, "bonds", graph.bonds, (rows, edge_channels), x)
    if graph.code is not None:
        expect(_NAME, "code", graph.code, tuple(graph.col.shape), x, torch.int32)
