"""The argument of the `gcn_stack` kernels as ctypes: `struct Parameters` of cuda/gcn_stack.cuh."""

from __future__ import annotations

import ctypes
from typing import Any

from torch import Tensor

from molgcn.ops.gcn_stack import StackInputs
from molgcn.ops.gcn_stack_plan import Saved

MAX_LAYERS = 400  # their addresses are the kernel's argument, of which CUDA takes 32 KB
TABLES = (32, 64, 128, 256, MAX_LAYERS)  # lengths of the tables of layers' addresses
_POINTERS = 10  # of `struct Layer`


def table_size(num_layers: int) -> int:
    """Length of the shortest table that has room for the layers."""
    return next(size for size in TABLES if num_layers <= size)


class _Parameters(ctypes.Structure):
    """`struct Parameters` of cuda/gcn_stack.cuh, up to its layers."""

    _fields_ = (
        *(
            (name, ctypes.c_uint64)
            for name in ("x", "ptr", "tile_ptr", "rowptr", "col", "seed", "pooled", "head_weight", "head_bias", "predictions")
        ),
        *((name, ctypes.c_uint64) for name in ("target", "target_mean", "target_std", "slopes", "terms", "loss_sums")),
        *((name, ctypes.c_uint64) for name in ("grad_loss", "head_sums", "grad_head_weight", "grad_head_bias")),
        *(
            (name, ctypes.c_uint64)
            for name in ("pulled", "wide_pulled", "transposed", "normalised", "deviations", "neighbours", "masks", "last", "arrivals")
        ),
        *((name, ctypes.c_uint64) for name in ("scratch", "grad_pooled", "grad_x", "totals", "partial")),
        *((name, ctypes.c_int32) for name in ("num_graphs", "num_nodes", "num_features", "num_layers", "num_tiles", "num_targets")),
        ("dropout_threshold", ctypes.c_uint32),
        ("dropout_scale", ctypes.c_float),
        ("eps", ctypes.c_float),
        ("delta", ctypes.c_float),
        ("kind", ctypes.c_int32),
        ("discard_from", ctypes.c_int32),
    )


_STRUCTURES = {
    size: type(f"_Parameters{size}", (_Parameters,), {"_fields_": (("layers", ctypes.c_uint64 * (_POINTERS * size)),)}) for size in TABLES
}


def parameters_of(inputs: StackInputs, saved: Tensor, scratch: Tensor, gradients: tuple[list[Tensor], ...] = ([], [], [], [])) -> Any:
    """What the operator's inputs say; the rest by :func:`fill`.

    Args:
        inputs: with tiles.
        saved: see :class:`Saved`.
        scratch: of molecules larger than a tile.
        gradients: of weights, biases, norms' weights and biases, where backward writes them.
    """
    parameters = _STRUCTURES[table_size(inputs.num_layers)]()
    for name in ("x", "ptr", "tile_ptr", "rowptr", "col", "seed"):
        setattr(parameters, name, getattr(inputs, name).data_ptr())
    if inputs.save_for_backward:
        for name, offset in Saved(inputs).offsets.items():
            setattr(parameters, name, saved.data_ptr() + offset)
    parameters.scratch = scratch.data_ptr()
    parameters.num_graphs = inputs.num_graphs
    parameters.num_nodes, parameters.num_features = inputs.x.shape
    parameters.num_layers = inputs.num_layers
    assert inputs.tile_ptr is not None
    parameters.num_tiles = inputs.tile_ptr.shape[0] - 1
    parameters.dropout_threshold = int(inputs.dropout_rate * 2**32)
    parameters.dropout_scale = 1.0 / (1.0 - inputs.dropout_rate)
    parameters.eps = inputs.eps
    columns = (
        inputs.weights,
        inputs.biases,
        inputs.norm_weights,
        inputs.norm_biases,
        inputs.running_means,
        inputs.running_vars,
        *gradients,
    )
    addresses = [0] * (_POINTERS * inputs.num_layers)
    for column, tensors in enumerate(columns):
        for layer, tensor in enumerate(tensors):
            addresses[_POINTERS * layer + column] = tensor.data_ptr()
    parameters.layers[: len(addresses)] = addresses
    return parameters


def fill(parameters: Any, tensors: dict[str, Tensor], numbers: dict[str, float]) -> None:
    """Sets fields by their names: addresses of tensors, and numbers."""
    for name, tensor in tensors.items():
        setattr(parameters, name, tensor.data_ptr())
    for name, number in numbers.items():
        setattr(parameters, name, number)
