"""Which saved features the backward of `molgcn::layer_network` discards from the L2 cache, since nothing reads them again."""

from __future__ import annotations

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.gcn_network import GcnCall
from molgcn.ops.gcn_tile_plan import features_bytes
from molgcn.ops.read_again import may_be_read_again


def discard_from(call: GcnCall, gpu: Gpu) -> int:
    """Return the first layer whose saved features backward discards, or `num_layers` if it discards none.

    It discards none if they may be read again, and none if the cache holds all layers, since nothing is written to memory then. In bf16 it
    discards the layers that may still be in the cache, otherwise all but the first: docs/decisions/cuda_tile_kernels.md has the
    measurements.
    """
    if may_be_read_again(call.graph.x):
        return call.network.num_layers
    layer_bytes = features_bytes(call)
    if call.network.num_layers * layer_bytes <= gpu.cache_bytes:
        return call.network.num_layers
    if call.options.precision != "bf16":
        return 1
    return max(1, call.network.num_layers - gpu.cache_bytes // layer_bytes)
