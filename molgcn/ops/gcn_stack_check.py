"""Checks of the arguments of `molgcn::gcn_stack`, run by every implementation: kernels read and write by address."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from molgcn.ops.expect import expect
from molgcn.ops.gcn_stack import POOLS, PRECISIONS, StackInputs
from molgcn.strategies import STRATEGIES

_OPTIONS = (("pool", POOLS), ("norm", (None, "batch", "layer")), ("precision", PRECISIONS), ("strategy", STRATEGIES))
_INDICES = ("ptr", "rowptr", "col", "tile_ptr", "counts")


def check(inputs: StackInputs) -> None:
    """Check the shapes, dtypes, devices and names of the forward pass; values are left to the implementations.

    Raises:
        ValueError: naming the first argument that does not fit.
    """
    _check(inputs, inputs.num_norms if inputs.norm == "batch" else 0)


def check_backward(saved: Tensor, num_bytes: int, inputs: StackInputs) -> None:
    """Check the arguments of the backward pass, which takes no running statistics of a batch in training.

    Args:
        saved: what the forward pass kept.
        num_bytes: how much the forward pass of this device keeps with these inputs.
        inputs: of the forward pass.

    Raises:
        ValueError: naming the first argument that does not fit.
    """
    statistics = len(inputs.running_means) if inputs.batch_statistics else inputs.num_norms
    _check(inputs, statistics if inputs.norm == "batch" else 0)
    if not inputs.save_for_backward:
        raise ValueError("gcn_stack: the backward pass needs inputs with save_for_backward=True, as the forward pass had them")
    expect("gcn_stack", "saved", saved, (num_bytes,), inputs.x, torch.uint8)


def _check(inputs: StackInputs, statistics: int) -> None:
    x, weights = inputs.x, inputs.weights
    if x.dim() != 2 or not weights or weights[0].dim() != 2:
        raise ValueError(f"gcn_stack: expected x of shape [N, F] and at least one layer, got x {list(x.shape)} and {len(weights)} layers")
    for option, names in _OPTIONS:
        if getattr(inputs, option) not in names:
            raise ValueError(f"gcn_stack: {option}={getattr(inputs, option)} is unknown. Expected one of {', '.join(map(str, names))}.")
    hidden, layers = inputs.hidden_channels, inputs.num_layers
    norms = 0 if inputs.norm is None else layers - (not inputs.last_activation)
    _check_parameters("weights[0]", weights[:1], 1, (hidden, x.shape[1]), x)
    _check_parameters("weights[1:]", weights[1:], layers - 1, (hidden, hidden), x)
    vector = (hidden,)
    _check_parameters("biases", inputs.biases, layers, vector, x)
    _check_parameters("norm_weights", inputs.norm_weights, norms, vector, x)
    _check_parameters("norm_biases", inputs.norm_biases, norms, vector, x)
    _check_parameters("running_means", inputs.running_means, statistics, vector, x)
    _check_parameters("running_vars", inputs.running_vars, statistics, vector, x)
    _check_indices(inputs)
    expect("gcn_stack", "seed", inputs.seed, (1,), x, torch.int64)
    if inputs.tile_nodes < 1:
        raise ValueError(f"gcn_stack: tile_nodes={inputs.tile_nodes}, expected at least 1")
    if inputs.folded and inputs.dropout_rate > 0:
        raise ValueError(f"gcn_stack: dropout={inputs.dropout_rate} with a folded batch; give a batch that is not folded")
    if not 0.0 <= inputs.dropout < 1.0:
        raise ValueError(f"gcn_stack: dropout={inputs.dropout}, expected a probability of at least 0 and below 1")


def _check_parameters(name: str, tensors: Sequence[Tensor], count: int, shape: tuple[int, ...], x: Tensor) -> None:
    dtype, device = x.dtype, x.device
    if len(tensors) != count:
        raise ValueError(f"gcn_stack: expected {count} {name} of shape {list(shape)}, got {len(tensors)}")
    for tensor in tensors:
        if tensor.shape != shape:
            raise ValueError(f"gcn_stack: expected {name} of shape {list(shape)}, got {list(tensor.shape)}")
        if tensor.dtype is not dtype or tensor.device != device:
            raise ValueError(f"gcn_stack: x is {dtype} on {device}, but a parameter is {tensor.dtype} on {tensor.device}; give both alike")


def _check_indices(inputs: StackInputs) -> None:
    x = inputs.x
    for name in _INDICES:
        index = getattr(inputs, name)
        if index is not None and (index.dtype != torch.int32 or index.dim() != 1 or index.device != x.device):
            raise ValueError(f"gcn_stack: expected {name} to be one-dimensional int32 on {x.device}, got {index.dtype} on {index.device}")
    if inputs.rowptr.shape[0] != x.shape[0] + 1:
        raise ValueError(f"gcn_stack: expected rowptr of shape [{x.shape[0] + 1}], got {list(inputs.rowptr.shape)}")
    for name in ("ptr", "tile_ptr"):
        index = getattr(inputs, name)
        if index is not None and index.shape[0] < 1:
            raise ValueError(f"gcn_stack: expected {name} to have at least one number, got none")
    if inputs.counts is not None and inputs.counts.shape[0] < 3:
        raise ValueError(f"gcn_stack: expected counts of molecules, atoms and bonds, got {inputs.counts.shape[0]} numbers")
