"""Check the arguments of `molgcn::message_network`. Every implementation does, since kernels read and write by address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from molgcn.config.strategies import STRATEGIES
from molgcn.ops.expect import expect, expect_countable, fit
from molgcn.ops.graph import Graph
from molgcn.ops.head_loss import check_kept
from molgcn.ops.message_network import PRECISIONS, NetworkCall

_NAME = "message_network"
_INDICES = ("ptr", "rowptr", "col", "tile_ptr", "counts")


def check(call: NetworkCall) -> None:
    """Check the shapes, dtypes, devices and names of the forward pass. The implementations check the values of indices.

    Raises:
        ValueError: If an argument does not fit. The message names the first one.
    """
    _check(call, call.spec.statistics)
    _check_epilogue(call)


def check_backward(grad_result: Tensor, saved: Tensor, of_loss: Sequence[Tensor], num_bytes: int, call: NetworkCall) -> None:
    """Check the arguments of the backward pass. It takes no targets and, with batch statistics, no running statistics.

    Args:
        grad_result: The gradient of the forward pass's result.
        saved: The memory that the forward pass kept.
        of_loss: The tensors that the forward pass kept of a loss; empty without a loss.
        num_bytes: The size of `saved` for these inputs on this device.
        call: The call of the forward pass.

    Raises:
        ValueError: If an argument does not fit. The message names the first one.
    """
    _check(call, {} if call.batch_statistics else call.spec.statistics)
    if not call.options.save_for_backward:
        raise ValueError(f"{_NAME}: the backward pass needs save_for_backward=True; run the forward pass with it too")
    x, hidden, num_graphs = call.graph.x, call.spec.hidden_channels, call.graph.num_graphs
    expect(_NAME, "saved", saved, (num_bytes,), x, torch.uint8)
    if not of_loss:
        return expect(_NAME, "grad_result", grad_result, (num_graphs, hidden), x)
    if len(of_loss) != 3 or len(call.epilogue.head) != 2:
        raise ValueError(f"{_NAME}: expected a head of weight and bias, and 3 tensors of its loss, got {len(of_loss)}")
    _check_head(call)
    sums, derivatives, head_sums = of_loss
    check_kept(grad_result, sums, derivatives, (num_graphs, call.epilogue.num_targets), x)
    expect(_NAME, "head_sums", head_sums, (call.epilogue.num_targets * (hidden + 1),), x)


def _check(call: NetworkCall, statistics: Mapping[str, tuple[int, ...]]) -> None:
    graph, spec, options = call.graph, call.spec, call.options
    x = graph.x
    if x.dim() != 2 or x.shape[1] != spec.in_channels:
        raise ValueError(f"{_NAME}: expected x of shape [N, {spec.in_channels}], got {list(x.shape)}")
    for option, value, names in (("precision", options.precision, PRECISIONS), ("strategy", options.strategy, STRATEGIES)):
        if value not in names:
            raise ValueError(f"{_NAME}: {option}={value} is unknown. Expected one of {', '.join(names)}.")
    _check_tensors("parameters", call.parameters.tensors, spec.parameters, x)
    _check_tensors("statistics", call.parameters.statistics, statistics, x)
    _check_indices(graph)
    expect(_NAME, "seed", call.seed, (1,), x, torch.int64)
    if graph.tile_nodes < 1:
        raise ValueError(f"{_NAME}: tile_nodes={graph.tile_nodes}, expected at least 1")
    if graph.leaves_merged and call.dropout_rate > 0:
        raise ValueError(f"{_NAME}: dropout={call.dropout_rate} with merged leaves; give a batch whose leaves are not merged")


def _check_tensors(kind: str, tensors: Sequence[Tensor], shapes: Mapping[str, tuple[int, ...]], x: Tensor) -> None:
    if len(tensors) != len(shapes):
        raise ValueError(f"{_NAME}: expected {len(shapes)} {kind} ({', '.join(shapes) or 'none'}), got {len(tensors)}")
    if fit(tensors, shapes, x):
        return
    for tensor, (name, shape) in zip(tensors, shapes.items(), strict=True):
        expect(_NAME, name, tensor, shape, x)


def _check_indices(graph: Graph) -> None:
    x = graph.x
    for name in _INDICES:
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


def _check_epilogue(call: NetworkCall) -> None:
    head, targets = call.epilogue.head, call.epilogue.targets
    if len(head) not in (0, 2) or len(targets) not in (0, 3 if head else 0):
        raise ValueError(
            f"{_NAME}: expected a head of weight and bias or none, and with it target, mean and std or none, got {len(head)} and "
            f"{len(targets)} tensors"
        )
    if not head:
        return
    _check_head(call)
    if not targets:
        if call.options.save_for_backward or call.batch_statistics:
            raise ValueError(
                f"{_NAME}: a head without targets is for inference, without a gradient; leave it out with save_for_backward=True or the "
                "statistics of a batch"
            )
        return
    num_targets = call.epilogue.num_targets
    for name, tensor, shape in zip(
        ("target", "mean", "std"), targets, ((call.graph.num_graphs, num_targets), (num_targets,), (num_targets,)), strict=True
    ):
        expect(_NAME, name, tensor, shape, call.graph.x)


def _check_head(call: NetworkCall) -> None:
    weight, bias = call.epilogue.head
    num_targets = weight.shape[0] if weight.dim() > 0 else 0
    expect(_NAME, "the head's weight", weight, (num_targets, call.spec.hidden_channels), call.graph.x)
    expect(_NAME, "the head's bias", bias, (num_targets,), call.graph.x)
    expect_countable(_NAME, call.graph.num_graphs, num_targets)
