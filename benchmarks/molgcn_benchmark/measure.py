"""Time calls by medians of interleaved repeats after a warm-up, and count the kernels that a call launches."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

from molgcn.training.throughput import is_kernel

Key = TypeVar("Key", bound=Hashable)


_ROW = 5.0  # milliseconds; with 1.0 a call of 146 us took 154 (benchmarks/README.md)


def interleaved(
    calls: Mapping[Key, Callable[[], object]], device: torch.device, repeats: int, warm_up: int = 2, row: float = _ROW
) -> dict[Key, list[float]]:
    """Return `repeats` times of each call in milliseconds, taken in turn, so that a change of the machine's load affects all alike.

    On a GPU a call of less than `row` ms is timed as several calls in a row, as in training. A single call would include the 10
    to 30 us that the host needs to launch work on an idle device.

    Args:
        calls: the calls by name.
        device: the device that they run on.
        repeats: the number of times of each call.
        warm_up: the number of times that each call is made before it is timed.
        row: the milliseconds that calls in a row take together.
    """
    rows = {}
    for name, call in calls.items():
        for _ in range(warm_up):
            call()
        rows[name] = math.ceil(row / max(milliseconds(call, device), 1e-2)) if device.type == "cuda" else 1
    times: dict[Key, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            times[name].append(milliseconds(call, device, rows[name]))
    return times


def milliseconds(call: Callable[[], object], device: torch.device, row: int = 1) -> float:
    """Return the milliseconds of a call, the mean of `row` calls in a row, from idle to idle device; a GPU's events time its calls."""
    synchronize(device)
    if device.type == "cuda":
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(row):
            call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) / row
    start = time.perf_counter()
    for _ in range(row):
        call()
    synchronize(device)
    return (time.perf_counter() - start) * 1e3 / row


def synchronize(device: torch.device) -> None:
    """Wait for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def medians(times: Mapping[Key, list[float]]) -> dict[Key, float]:
    """Return the median of each call's times."""
    return {name: statistics.median(values) for name, values in times.items()}


def count_kernels(call: Callable[[], object], device: torch.device) -> int | None:
    """Return the number of kernels that a call launches on a GPU, those of CUDA graphs included; None on a CPU.

    PyTorch's profiler counts them.
    """
    if device.type != "cuda":
        return None
    synchronize(device)
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        call()
        synchronize(device)
    return sum(is_kernel(event) for event in profiler.events())
