"""The arguments of the layers' kernels as ctypes: `struct Activation` and `Parameters` of cuda/gcn_layer*."""

from __future__ import annotations

import ctypes

from molgcn.ops.gcn_layers_plan import MAX_TABLE

TABLES = (32, MAX_TABLE)  # lengths of the tables of layers' addresses


def table_size(num_layers: int) -> int:
    """Length of the shortest table that has room for the layers."""
    return next(size for size in TABLES if num_layers <= size)


class Activation(ctypes.Structure):
    """`struct Activation` of cuda/gcn_layer.cuh."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("weight", "bias", "mean", "variance", "new_mean", "new_variance", "raw", "moments")),
        *((name, ctypes.c_uint64) for name in ("masks", "sums", "grad_weight", "grad_bias", "grad_layer_bias")),
        ("layer", ctypes.c_int32),
        ("on", ctypes.c_int32),
    )


class Parameters(ctypes.Structure):
    """`struct Parameters` of cuda/gcn_layer.cuh."""

    _fields_ = (
        *((name, ctypes.c_uint64) for name in ("ptr", "rowptr", "col", "sources", "factors", "scale", "graph", "seed", "input")),
        *((name, ctypes.c_uint64) for name in ("gradient", "kept", "fragments", "scales", "bias", "residual", "output", "next_gradient")),
        *((name, ctypes.c_uint64) for name in ("partial", "group_sums", "arrivals", "pooled", "largest", "ties", "grad_pooled", "grad_x")),
        *((name, ctypes.c_int32) for name in ("num_graphs", "num_nodes", "num_features", "in_width", "tiles_per_group", "atoms_per_part")),
        ("dropout_threshold", ctypes.c_uint32),
        *((name, ctypes.c_float) for name in ("dropout_scale", "eps", "momentum")),
        ("before", Activation),
        ("after", Activation),
    )


def _table(name: str, numbers: tuple[str, ...], pointers: tuple[str, ...], table: str) -> dict[int, type[ctypes.Structure]]:
    """Structures that end in a table of the layers' addresses, by its length."""
    fields = [*((field, ctypes.c_uint64) for field in pointers), *((field, ctypes.c_int32) for field in numbers)]
    return {size: type(f"{name}{size}", (ctypes.Structure,), {"_fields_": (*fields, (table, ctypes.c_uint64 * size))}) for size in TABLES}


PREPARE = _table(
    "_Prepare",
    ("num_graphs", "num_features", "in_width", "hidden", "num_layers", "scale_stride", "num_counters"),
    ("ptr", "rowptr", "col", "sources", "factors", "scale", "graph", "x", "padded_x", "fragments", "scales", "counters"),
    "weights",
)
WEIGHTS = _table(
    "_Weights",
    ("num_graphs", "num_nodes", "num_features", "in_width", "first_layer", "num_tiles", "splits", "atoms_per_split"),
    ("ptr", "first_input", "inputs", "gradients", "partial", "arrivals"),
    "grad_weights",
)


class ChainLayer(ctypes.Structure):
    """`struct Layer` of cuda/gcn_chain.cuh."""

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("bias", "norm_weight", "norm_bias", "mean", "variance", "grad_bias", "grad_norm_weight", "grad_norm_bias")
    )


_CHAIN = (
    *((name, ctypes.c_uint64) for name in ("ptr", "rowptr", "col", "sources", "factors", "scale", "graph", "seed", "x", "features")),
    *((name, ctypes.c_uint64) for name in ("raw", "moments", "masks", "fragments", "scales", "sums", "arrivals")),
    *((name, ctypes.c_uint64) for name in ("new_mean", "new_variance", "grad_pooled", "largest", "ties", "outputs", "gradients", "grad_x")),
    *((name, ctypes.c_int32) for name in ("num_graphs", "num_nodes", "num_features", "in_width", "num_layers", "num_norms")),
    *((name, ctypes.c_int32) for name in ("residual", "first_residual")),
    ("dropout_threshold", ctypes.c_uint32),
    *((name, ctypes.c_float) for name in ("dropout_scale", "eps", "momentum")),
)
CHAIN = {size: type(f"_Chain{size}", (ctypes.Structure,), {"_fields_": (*_CHAIN, ("layers", ChainLayer * size))}) for size in TABLES}
