"""The struct of arguments of the kernels of strategy `tile`, `cuda/gcn_tile_*.cu`."""

from __future__ import annotations

import ctypes
from typing import Any

from torch import Tensor

from molgcn.cuda_runtime.structs import Header, fill
from molgcn.ops.gcn_network import GcnCall, Parameters
from molgcn.ops.gcn_tile_plan import Saved

MAX_LAYERS = 400  # all layers' addresses are kernel arguments, and CUDA allows 32 KB of these
TABLES = (32, 64, 128, 256, MAX_LAYERS)  # lengths of the tables of layers' addresses


def table_size(num_layers: int) -> int:
    """Return the length of the shortest table that has room for the layers."""
    return next(size for size in TABLES if num_layers <= size)


_HEADER = Header(
    "gcn_tile_structs.h",
    Bonds=[("const int*", "rowptr col")],
    Layer=[
        ("const float*", "weight bias norm_weight norm_bias mean variance"),  # weight [out, in]
        ("float*", "grad_weight grad_bias grad_norm_weight grad_norm_bias"),
    ],
    Parameters=[
        ("const float*", "x"),  # [N, F]
        ("const int*", "ptr tile_ptr"),
        ("Bonds", "bonds"),
        ("const uint64*", "seed"),
        ("float*", "pooled"),  # [B, H]
        ("const float*", "head_weight head_bias"),  # [T, H], [T]
        ("float*", "predictions"),  # [B, T]: the head's predictions, for inference
        ("const float*", "target target_mean target_std"),  # [B, T], [T], with LOSS
        ("float*", "derivatives"),  # [B, T]: derivative of each term of the loss, 0 where the target is missing
        ("double*", "terms"),  # [tiles, WARPS, 2]: sum and number of the terms
        ("const double*", "loss_sums"),  # [2]: sum and number of all terms
        ("const float*", "grad_loss head_sums"),  # [], [T, H] and [T]: sums of derivatives times pooled features and of derivatives
        ("float*", "grad_head_weight grad_head_bias"),  # [T, H], [T]
        ("unsigned char*", "pulled"),  # saved [L, N, width]: (A + I) D^-1/2 times each layer's input
        ("unsigned char*", "wide_pulled"),  # saved [N, wide_width]: `pulled` of the first layer if x has more columns than `width`
        ("unsigned char*", "transposed"),  # saved [L - 1, spans, column_tiles, 32]: weights as backward's products read them, `Rounded`
        ("float*", "normalised"),  # saved [K, N, width]
        ("float*", "deviations"),  # saved [K, N]: 1 / sqrt(variance + eps), layer norm only
        ("unsigned char*", "neighbours"),  # saved [tiles, kept_bytes]
        ("uint32*", "masks"),  # saved [L, strips, WARPS, mask_words, 32]: which activations are > 0 and kept
        ("float*", "last"),  # saved [N, width]: the last layer's output by atom, for pool=max only
        ("uint32*", "arrivals"),  # saved [2]: counters of the grid's barrier
        ("unsigned char*", "scratch"),  # [3, N, stride] bytes: features of large molecules
        ("const float*", "grad_pooled"),
        ("float*", "grad_x"),  # [N, F], with INPUT_GRADIENT
        ("float*", "totals"),  # [blocks, gradient size]: sums of gradients that are not in shared memory
        ("float*", "partial"),  # [blocks, reduced size]
        ("int", "num_graphs num_nodes num_features num_layers num_tiles"),  # with the room of padded batches
        ("int", "num_targets"),  # T, or 0 where only `pooled` is wanted
        ("uint32", "dropout_threshold"),
        ("float", "dropout_scale eps delta"),
        ("int", "kind"),  # the number of the loss
        ("int", "discard_from"),  # the first layer whose `pulled` backward discards
        ("Layer", "layers[MAX_LAYERS]"),
    ],
)
_POINTERS = ctypes.sizeof(_HEADER.ctype("Layer")) // ctypes.sizeof(ctypes.c_uint64)  # the number of addresses of a layer
_PARAMETERS = {size: _HEADER.ctype(MAX_LAYERS=size) for size in TABLES}


def parameters_of(call: GcnCall, saved: Tensor, scratch: Tensor, gradients: Parameters | None = None) -> ctypes.Structure:
    """Return the kernel's arguments with the fields that a call determines. The caller fills the others by name.

    Args:
        call: A call whose graph has tiles.
        saved: The memory for what backward needs; see :class:`Saved`.
        scratch: The memory for molecules larger than a tile.
        gradients: The parameters' gradients, which backward writes; None in forward.
    """
    graph, network = call.graph, call.network
    assert graph.tile_ptr is not None
    parameters = _PARAMETERS[table_size(network.num_layers)]()
    fill(parameters, {"x": graph.x, "ptr": graph.ptr, "tile_ptr": graph.tile_ptr, "seed": call.seed, "scratch": scratch})
    fill(parameters.bonds, {"rowptr": graph.rowptr, "col": graph.col})
    if call.options.save_for_backward:
        for name, offset in Saved(call).offsets.items():
            setattr(parameters, name, saved.data_ptr() + offset)
    parameters.num_graphs, parameters.num_nodes, parameters.num_features = graph.num_graphs, graph.num_nodes, network.in_channels
    parameters.num_layers, parameters.num_tiles = network.num_layers, graph.tile_ptr.shape[0] - 1
    parameters.dropout_threshold = int(call.dropout_rate * 2**32)
    parameters.dropout_scale = 1.0 / (1.0 - call.dropout_rate)
    parameters.eps = network.eps
    of_gradients = () if gradients is None else (gradients.weights, gradients.biases, gradients.norm_weights, gradients.norm_biases)
    columns = (*call.parameters, *of_gradients)  # in the order of a layer's fields
    addresses = [0] * (_POINTERS * network.num_layers)
    for column, tensors in enumerate(columns):
        for layer, tensor in enumerate(tensors):
            addresses[_POINTERS * layer + column] = tensor.data_ptr()
    table: Any = (ctypes.c_uint64 * len(addresses)).from_buffer(parameters.layers)
    table[:] = addresses  # at once, which is quicker than field by field
    return parameters
