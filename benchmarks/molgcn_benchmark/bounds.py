"""Say from a GPU's counters what bounds each kernel of a training step, and how far the kernel is from that bound."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from molgcn_benchmark.nsight_compute import STALLS, Launch, Metric, percentage
from molgcn_benchmark.results import Row

RESOURCES = {
    "device memory": percentage("dram__throughput"),
    "L2": percentage("lts__throughput"),
    "shared memory and L1": percentage("l1tex__data_pipe_lsu_wavefronts"),
    "tensor cores": percentage("sm__pipe_tensor_cycles_active"),
    "multiply-add": percentage("sm__pipe_fma_cycles_active"),
    "issue slots": percentage("smsp__issue_active"),
}
"""What can bound a kernel, each in percent of the whole GPU's peak over the kernel's time."""

TIME, TRAFFIC, BUSY, OCCUPANCY = "time, us", "device memory, MB", "multiprocessors", "occupancy"
METRICS = {
    TIME: Metric(("gpu__time_duration.sum",), 1e-3),
    TRAFFIC: Metric(("dram__bytes_read.sum", "dram__bytes_write.sum"), 1e-6),
    BUSY: percentage("sm__cycles_active"),
    OCCUPANCY: percentage("sm__warps_active", "active"),
    **RESOURCES,
    **{f"stall: {title}": metric for title, metric in STALLS.items()},
}

KEY = ("network", "batch_size", "precision", "kernel")
SHOWN = 1.0  # percent of a step's time from which a kernel is in the Markdown table


def kernel_rows(launches: Sequence[Launch]) -> list[Row]:
    """Return a row for each kernel of a step, the longest first.

    A row has the number of launches, the microseconds of all of them and their share of the step, GB/s of device memory, and percentages,
    which are means over the launches, weighted by their time. "bound by" is the most used of :data:`RESOURCES`. "waits for" is the
    commonest reason why warps wait, with its share of the warps' time. Where no resource is used much, that wait bounds the kernel.

    Args:
        launches: the launches of one step, measured with :data:`METRICS`.
    """
    kernels: dict[str, list[Launch]] = {}
    for launch in launches:
        kernels.setdefault(launch.kernel, []).append(launch)
    whole = _total(launches, TIME)
    rows = [_row(name, ones, whole) for name, ones in kernels.items()]
    return sorted(rows, key=lambda row: -row["us"])


def _row(name: str, launches: Sequence[Launch], whole: float) -> Row:
    time = _total(launches, TIME)
    used = {title: _mean(launches, title) for title in (*RESOURCES, BUSY, OCCUPANCY)}
    stalls = {title: _mean(launches, f"stall: {title}") for title in STALLS}
    cycles = 1 + math.fsum(stalls.values())  # per instruction: the one that issues it, and those in which the warp waits
    waits = {title: 100 * value / cycles for title, value in stalls.items()}
    return {
        "kernel": name,
        "launches": len(launches),
        "us": round(time, 1),
        "share, %": round(100 * time / whole, 1),
        "GB/s": round(_total(launches, TRAFFIC) / time * 1e3),
        **{f"{title}, %": round(value, 1) for title, value in used.items()},
        "bound by": _largest({title: used[title] for title in RESOURCES}),
        "waits for": _largest(waits),
        **{f"waits for {title}, %": round(value, 1) for title, value in waits.items()},
    }


def _total(launches: Sequence[Launch], title: str) -> float:
    return math.fsum(launch.values[title] for launch in launches if not math.isnan(launch.values[title]))


def _mean(launches: Sequence[Launch], title: str) -> float:
    """Return the mean of a metric, weighted by time, over the launches that have it; zero if none has."""
    known = [launch for launch in launches if not math.isnan(launch.values[title])]
    time = _total(known, TIME)
    return math.fsum(launch.values[title] * launch.values[TIME] for launch in known) / time if time else 0.0


def _largest(percent: dict[str, float]) -> str:
    title = max(percent, key=lambda name: percent[name])
    return f"{title} {percent[title]:.0f} %"


def sheet(rows: Sequence[Row]) -> list[str]:
    """Return a Markdown table for each step, without the kernels that take less than :data:`SHOWN` percent of it.

    Args:
        rows: rows of :func:`kernel_rows`, with the columns :data:`KEY`.
    """
    steps: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        steps.setdefault((row["network"], row["batch_size"], row["precision"]), []).append(row)
    lines = []
    for (network, batch_size, precision), kernels in steps.items():
        launches, time = sum(row["launches"] for row in kernels), math.fsum(row["us"] for row in kernels)
        lines += [f"## {network}, B = {batch_size:,}, precision {precision}: {launches} launches, {time:,.0f} us", ""]
        table = [_cells(row) for row in kernels if row["share, %"] >= SHOWN]
        lines += [f"| {' | '.join(table[0])} |", f"|---|{'---:|' * (len(table[0]) - 3)}---|---|"]
        lines += [*(f"| {' | '.join(cells.values())} |" for cells in table), ""]
    return lines


def _cells(row: Row) -> dict[str, str]:
    counted = {title: f"{row[title]:,.0f}" for title in ("launches", "us", "share, %", "GB/s")}
    used = {f"{title}, %": f"{row[f'{title}, %']:.0f}" for title in (*RESOURCES, BUSY, OCCUPANCY)}
    return {"kernel": row["kernel"], **counted, **used, "bound by": row["bound by"], "waits for": row["waits for"]}
