"""The one way of timing: medians of interleaved repeats after a warm-up; and of counting kernels."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Hashable, Mapping
from typing import TypeVar

import torch
from torch.profiler import ProfilerActivity, profile

from molgcn.training.launches import is_kernel

Key = TypeVar("Key", bound=Hashable)


def interleaved(calls: Mapping[Key, Callable[[], object]], device: torch.device, repeats: int, warm_up: int = 2) -> dict[Key, list[float]]:
    """Milliseconds of each call, `repeats` times in turn, so that a change of the machine's load meets all alike."""
    for call in calls.values():
        for _ in range(warm_up):
            call()
    times: dict[Key, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            times[name].append(milliseconds(call, device))
    return times


def milliseconds(call: Callable[[], object], device: torch.device) -> float:
    """Time of one call, from an idle device to an idle device: on a GPU by its events, without the host's wait for it."""
    synchronize(device)
    if device.type == "cuda":
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)
    start = time.perf_counter()
    call()
    synchronize(device)
    return (time.perf_counter() - start) * 1e3


def synchronize(device: torch.device) -> None:
    """Waits for the device."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def medians(times: Mapping[Key, list[float]]) -> dict[Key, float]:
    """The median of each call's times."""
    return {name: statistics.median(values) for name, values in times.items()}


def count_kernels(call: Callable[[], object], device: torch.device) -> int | None:
    """Kernels that one call launches on a GPU, as PyTorch's profiler sees them, those of a CUDA graph included; None on a CPU."""
    if device.type != "cuda":
        return None
    synchronize(device)
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as profiler:
        call()
        synchronize(device)
    return sum(is_kernel(event) for event in profiler.events())
