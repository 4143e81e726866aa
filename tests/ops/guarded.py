"""Tensors that end where a page begins that nothing may touch."""

from __future__ import annotations

import ctypes
import mmap

import numpy as np
import torch
from torch import Tensor

_libc = ctypes.CDLL(None, use_errno=True)
_ALIGNMENT = 16


def guarded(tensor: Tensor | None) -> Tensor | None:
    """Return a copy of a tensor, aligned to 16 bytes, such that a read or write of what follows ends the process."""
    if tensor is None or tensor.numel() == 0:
        return tensor
    size, page = tensor.numel() * tensor.element_size(), mmap.PAGESIZE
    pages = -(-size // page)
    room = np.frombuffer(mmap.mmap(-1, (pages + 1) * page), np.uint8)  # keeps the memory
    assert _libc.mprotect(ctypes.c_void_p(room.ctypes.data + pages * page), page, 0) == 0
    begin = pages * page - -(-size // _ALIGNMENT) * _ALIGNMENT
    copy = torch.from_numpy(room[begin : begin + size]).view(tensor.dtype).view(tensor.shape)
    return copy.copy_(tensor.detach())
