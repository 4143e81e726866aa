"""Whether backward may write over what forward saved for it, since nothing reads that again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

_both_captured = False


@contextmanager
def capturing_both_ways() -> Iterator[None]:
    """Promise that the CUDA graph captured inside a `with` block holds every backward together with its forward.

    A replay then computes the saved values again before backward reads them, so backward may discard them.
    """
    global _both_captured
    before, _both_captured = _both_captured, True
    try:
        yield
    finally:
        _both_captured = before


def may_be_read_again(saved: Tensor) -> bool:
    """Return whether what forward saved may be read after the backward pass that is running.

    It may be if autograd retains its graph, if the operator is called outside autograd, or in a CUDA graph that may hold backward alone.
    """
    keeps: bool = torch._C._autograd._get_current_graph_task_keep_graph()
    return keeps or (saved.is_cuda and torch.cuda.is_current_stream_capturing() and not _both_captured)
