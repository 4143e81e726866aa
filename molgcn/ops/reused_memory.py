"""Memory on the CPU that large tensors use one after another. Fresh pages from the system take longer to zero than a pass to write."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import Any
from weakref import finalize

import torch
from torch import Tensor

_LEAST = 1 << 20  # bytes of a tensor; the allocator of C keeps smaller ones itself
_MOST = 1 << 30  # bytes that are kept while no tensor uses them
_PAGE = 2 << 20
_free: deque[Any] = deque()  # arrays of bytes, the longest unused first; a deque's own methods are safe between threads


def reused_empty(numbers: int, dtype: torch.dtype) -> Tensor:
    """Return an uninitialised tensor [numbers] on the CPU. Once its storage is gone, a later tensor of about its size takes the memory."""
    size = numbers * dtype.itemsize
    if size < _LEAST:
        return torch.empty(numbers, dtype=dtype)
    block = _block(size)
    used = block[:size]
    finalize(used, _give_back, block).atexit = False
    return torch.from_numpy(used).view(dtype)


def _block(size: int) -> Any:
    with suppress(IndexError):  # another thread may take the last one
        for _ in range(len(_free)):
            block = _free.popleft()
            if size <= block.nbytes <= 2 * size:
                return block
            _free.append(block)
    return torch.empty(-(-size * 9 // 8 // _PAGE) * _PAGE, dtype=torch.uint8).numpy()  # room for somewhat larger batches


def _give_back(block: Any) -> None:
    _free.append(block)
    with suppress(IndexError):
        while sum(each.nbytes for each in tuple(_free)) > _MOST:
            _free.popleft()
