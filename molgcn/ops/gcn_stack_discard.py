"""Which kept features the backward of `molgcn::message_network` discards from the cache, as it is the last to read them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.gcn_stack_plan import features_bytes
from molgcn.ops.message_network import NetworkCall

_both_captured = False


@contextmanager
def capturing_both_ways() -> Iterator[None]:
    """For a CUDA graph that captures forward and backward: no backward is replayed without its forward, which writes all anew."""
    global _both_captured
    before, _both_captured = _both_captured, True
    try:
        yield
    finally:
        _both_captured = before


def discard_from(call: NetworkCall, gpu: Gpu) -> int:
    """The first layer whose features are, `num_layers` where none are: they may be read again.

    So it is where autograd keeps its graph or the operator is called outside of it, and in a CUDA graph that may hold backward alone; and
    where the cache holds all layers, so that nothing is written to memory anyway. In bf16 only those that may still be in the cache are
    discarded, else all but the first: measured, docs/decisions/cuda_tried.md.
    """
    keeps = torch._C._autograd._get_current_graph_task_keep_graph()
    if keeps or (call.graph.x.is_cuda and torch.cuda.is_current_stream_capturing() and not _both_captured):
        return call.spec.num_layers
    layer_bytes = features_bytes(call)
    if call.spec.num_layers * layer_bytes <= gpu.cache_bytes:
        return call.spec.num_layers
    if call.options.precision != "bf16":
        return 1
    return max(1, call.spec.num_layers - gpu.cache_bytes // layer_bytes)
