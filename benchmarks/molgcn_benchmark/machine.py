"""Record where and when a benchmark ran."""

from __future__ import annotations

import datetime
import platform
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch


def machine(device: torch.device) -> dict[str, str | int | float]:
    """Return the facts of a run: processor, cores, threads, GPU, date and versions."""
    facts: dict[str, str | int | float] = {
        "date": datetime.date.today().isoformat(),
        "cpu": cpu_name(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
    }
    for package in ("torch", "torch-geometric", "molgcn"):
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            continue
    if device.type == "cuda":
        facts["gpu"] = torch.cuda.get_device_name(device)
    else:
        from molgcn import _cpu

        facts["instruction_set"] = _cpu.instruction_sets()[0]
        facts["fma_peak_gflops"] = _peak_gflops(torch.get_num_threads())
    return facts


@cache
def _peak_gflops(threads: int) -> float:
    from molgcn import _cpu

    return round(max(_cpu.peak_gflops(threads) for _ in range(20)), 1)


def cpu_name() -> str:
    """Return the processor's name and its number of cores."""
    info = Path("/proc/cpuinfo")
    names = (
        [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if line.startswith("model name")] if info.exists() else []
    )
    return f"{names[0]}, {len(names)} cores" if names else platform.processor()
