"""Write batch norms' running statistics, which operators return as one tensor, into their buffers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from molgcn.cuda_runtime.launch import kernel
from molgcn.cuda_runtime.structs import Header

MAX_BUFFERS = 128  # the most buffers of one launch, whose arguments have at most 4 KB
_THREADS = 128
_HEADER = Header(
    "running_statistics_structs.h",
    Parameters=[
        ("const float*", "statistics"),  # [buffers, columns]
        ("float*", "buffers[MAX_BUFFERS]"),
        ("long long*", "counts[MAX_BUFFERS]"),
        ("int", "num_counts columns"),
    ],
)


def copy_statistics(buffers: Sequence[Tensor], counts: Sequence[Tensor], statistics: Tensor) -> None:
    """Copy statistics into buffers in index, and add 1 to counts. On CUDA float32 takes one launch.

    Args:
        buffers: 2 K tensors [C]: the running means, then the running variances.
        counts: K int64 scalars, which count the batches.
        statistics: The new means and variances [2, K, C].
    """
    rows = statistics.detach().flatten(0, 1)
    in_one_launch = rows.is_cuda and rows.is_contiguous() and len(buffers) <= MAX_BUFFERS and not torch.compiler.is_compiling()
    if in_one_launch and all(buffer.dtype == rows.dtype == torch.float32 and buffer.is_contiguous() for buffer in buffers):
        copy_by_kernel(buffers, counts, rows)
        return
    with torch.no_grad():
        torch._foreach_copy_(list(buffers), list(rows.unbind()))
        torch._foreach_add_(list(counts), 1)


def copy_by_kernel(buffers: Sequence[Tensor], counts: Sequence[Tensor], rows: Tensor) -> None:
    """Do what :func:`copy_statistics` does, given contiguous tensors in float32 and the statistics as one row for each buffer."""
    it: Any = _HEADER.ctype(MAX_BUFFERS=MAX_BUFFERS)(statistics=rows.data_ptr(), num_counts=len(counts), columns=rows.shape[1])
    it.buffers[: len(buffers)] = [*map(Tensor.data_ptr, buffers)]
    it.counts[: len(counts)] = [*map(Tensor.data_ptr, counts)]
    function = kernel("running_statistics.cu", "copy_statistics", {"MAX_BUFFERS": MAX_BUFFERS}, rows.device)
    function.launch(len(buffers), _THREADS, 0, it, overlap=True)
    torch.autograd.graph.increment_version([*buffers, *counts])
