"""Read the GPU's counters of kernels with Nsight Compute's command line, `ncu`."""

from __future__ import annotations

import csv
import math
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from molgcn.errors import UserError

_FOLDERS = ("/usr/local/cuda*/bin", "/opt/nvidia/nsight-compute/*")


@dataclass(frozen=True)
class Metric:
    """One number per launch: the sum of some of ncu's metrics times a factor, which converts base units such as ns and bytes."""

    names: tuple[str, ...]
    scale: float = 1.0


@dataclass(frozen=True)
class Launch:
    """One launch of a kernel.

    Attributes:
        kernel: the kernel's name without parameters and templates.
        values: the metrics by title, NaN where ncu has no number.
    """

    kernel: str
    values: dict[str, float]


def percentage(counter: str, of: str = "elapsed") -> Metric:
    """Return a counter in percent of its peak, over all units and the `elapsed` cycles of a kernel or a unit's `active` cycles."""
    return Metric((f"{counter}.avg.pct_of_peak_sustained_{of}",))


def _stalled(*reasons: str) -> Metric:
    return Metric(tuple(f"smsp__average_warps_issue_stalled_{reason}_per_issue_active.ratio" for reason in reasons))


STALLS = {
    "fixed latencies": _stalled("wait"),
    "global or local memory": _stalled("long_scoreboard", "lg_throttle"),
    "shared memory": _stalled("short_scoreboard", "mio_throttle"),
    "tensor cores, dispatch": _stalled("math_pipe_throttle", "dispatch_stall"),
    "its turn, another warp being issued": _stalled("not_selected"),
    "another warp of its block": _stalled("barrier", "membar", "sleeping"),
    "the next instruction, a branch": _stalled("no_instruction", "branch_resolving"),
}
"""What warps wait for: the cycles that a warp waits for it per instruction."""


def call_between_marks(call: Callable[[], object]) -> None:
    """Do a call between the profiler's marks, compiled and warmed up before. The program that :func:`profile` starts calls this."""
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()  # ncu saves all allocated memory before it runs a kernel several times
    torch.cuda.profiler.start()
    call()
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def profile(command: Sequence[str], metrics: Mapping[str, Metric], kernels: str = "") -> list[Launch]:
    """Run a program under ncu and return the launches between its marks, in order.

    Each kernel is run alone, with the clocks as they are. It is run several times if there are more metrics than the GPU has counters.
    Caches are not emptied between, so that what fits L2 may be read from there.

    Args:
        command: the program and its arguments.
        metrics: what to measure, by title.
        kernels: regular expression of the kernels' names; without one all kernels are measured.

    Raises:
        UserError: if ncu is missing, or it or the program fails.
    """
    names = sorted({name for metric in metrics.values() for name in metric.names})
    profiler = [_ncu(), "--csv", "--page=raw", "--print-units=base", "--print-kernel-base=function", "--profile-from-start=off"]
    profiler += ["--cache-control=none", "--clock-control=none", "--metrics", ",".join(names)]
    if kernels:
        profiler.append(f"--kernel-name=regex:{kernels}")
    done = subprocess.run([*profiler, *command], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise UserError(f"ncu ended with code {done.returncode}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return launches(done.stdout, metrics)


def _ncu() -> str:
    found = [shutil.which("ncu"), *(str(path) for folder in _FOLDERS for path in sorted(Path("/").glob(f"{folder[1:]}/ncu"), reverse=True))]
    program = next(filter(None, found), None)
    if program is None:
        raise UserError(f"ncu was found neither in PATH nor in {' or '.join(_FOLDERS)}. Install Nsight Compute, which is part of CUDA.")
    return program


def launches(report: str, metrics: Mapping[str, Metric]) -> list[Launch]:
    """Return the launches of a report that `ncu --csv --page raw --print-units base` prints.

    Args:
        report: CSV with names, units and then a row for each launch, all cells in quotes. Other lines are output of the program and ncu.
        metrics: what was measured, by title.

    Raises:
        UserError: if no kernel was measured or a metric is missing.
    """
    lines = [line for line in report.splitlines() if line.startswith('"')]
    begin = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    rows = list(csv.DictReader(lines[begin:]))[1:]
    if not rows:
        raise UserError(f"ncu measured no kernel:\n{report[:3000]}")
    if missing := {name for metric in metrics.values() for name in metric.names} - rows[0].keys():
        raise UserError(f"this version of ncu has no {', '.join(sorted(missing))}.")
    return [Launch(row["Kernel Name"], {title: _value(row, metric) for title, metric in metrics.items()}) for row in rows]


def _value(row: Mapping[str, str | None], metric: Metric) -> float:
    return metric.scale * sum(_number(row[name]) for name in metric.names)


def _number(cell: str | None) -> float:
    try:
        return float((cell or "").replace(",", ""))
    except ValueError:  # "n/a"
        return math.nan
