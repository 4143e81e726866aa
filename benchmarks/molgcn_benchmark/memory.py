"""Measure the memory that work takes on a GPU, as plain calls and as replays of a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable

import torch

from molgcn_benchmark.candidates import capture


def peak_mb(call: Callable[[], object]) -> float:
    """Return the most MB (2^20 bytes) that a call allocates beyond what was allocated before, its results included."""
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def captured_mb(call: Callable[[], object]) -> float:
    """Return the MB (2^20 bytes) that a CUDA graph of a call takes from the device.

    A graph keeps a pool of memory for itself between its replays. The pool's whole segments count, with what lies unused in them, so that
    this is at least the peak of the call and some 20 MB more for small batches.
    """
    before = _taken()
    replay = capture(call)
    replay()
    return (_taken() - before) / 2**20


def _taken() -> int:
    """Return the bytes that PyTorch has taken from the device and cannot give back."""
    torch.cuda.synchronize()
    torch._C._cuda_clearCublasWorkspaces()  # as capturing does: a graph has its own in its pool
    torch.cuda.empty_cache()
    return torch.cuda.memory_reserved()
