"""Which saved features the backward of `molgcn::layer_network` discards from the L2 cache, since nothing reads them again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.gcn_network import GcnCall
from molgcn.ops.gcn_tile_plan import features_bytes

_both_captured = False


@contextmanager
def capturing_both_ways() -> Iterator[None]:
    """Promise that the CUDA graph captured inside a `with` block holds every backward together with its forward.

    A replay then computes the saved features again before backward reads them, so backward may discard them.
    """
    global _both_captured
    before, _both_captured = _both_captured, True
    try:
        yield
    finally:
        _both_captured = before


def may_be_read_again(saved: Tensor) -> bool:
    """Return whether what forward saved may be read after the backward pass that is running.

    It may if autograd retains its graph, if the operator is called outside autograd, and in a CUDA graph that may hold backward alone.
    """
    keeps: bool = torch._C._autograd._get_current_graph_task_keep_graph()
    return keeps or (saved.is_cuda and torch.cuda.is_current_stream_capturing() and not _both_captured)


def discard_from(call: GcnCall, gpu: Gpu) -> int:
    """Return the first layer whose saved features backward discards, or `num_layers` if it discards none.

    It discards none if they may be read again. It discards none either if the cache holds all layers, since nothing is written to memory
    then. In bf16 it discards the layers that may still be in the cache, otherwise all but the first: docs/decisions/cuda_tile_kernels.md
    has the measurements.
    """
    if may_be_read_again(call.graph.x):
        return call.network.num_layers
    layer_bytes = features_bytes(call)
    if call.network.num_layers * layer_bytes <= gpu.cache_bytes:
        return call.network.num_layers
    if call.options.precision != "bf16":
        return 1
    return max(1, call.network.num_layers - gpu.cache_bytes // layer_bytes)
