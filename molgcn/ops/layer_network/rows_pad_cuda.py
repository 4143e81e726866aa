"""Copy a network's inputs to rows whose width is a multiple of four, by `cuda/rows_pad.cu`."""

from __future__ import annotations

import torch
from torch import Tensor

from molgcn.cuda_runtime.launch import gpu, kernel
from molgcn.cuda_runtime.structs import Header
from molgcn.ops.layer_network.passes import Rows

_THREADS = 256
_BLOCKS = 8  # the most blocks per multiprocessor

_HEADER = Header(
    "rows_pad_structs.h",
    Parameters=[
        ("const real*", "rows"),  # [num_rows, width]
        ("real*", "out"),  # [num_rows, stride]
        ("int", "num_rows width stride"),
    ],
)


def pad_rows(given: Tensor, to: Rows) -> None:
    """Copy rows to others of the same width, whose columns between width and stride become zero.

    Args:
        given: The rows, contiguous [num_rows, width].
        to: The rows to write.
    """
    num_rows, width = given.shape
    it = _HEADER.ctype()(num_rows=num_rows, width=width, stride=to.stride, rows=given.data_ptr(), out=to.address)
    blocks = min(-(-num_rows * to.stride // (4 * _THREADS)), _BLOCKS * gpu(given.device).num_multiprocessors)
    if blocks > 0:
        kernel("rows_pad.cu", "rows_pad", {"DOUBLE": int(given.dtype == torch.float64)}, given.device).launch(blocks, _THREADS, 0, it)
