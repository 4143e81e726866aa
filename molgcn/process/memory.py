"""The memory that this process holds.

On Linux the values come from /proc, which starts anew with every program. The peak of `getrusage` does not: it begins at the peak of the
process that started this one.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_PROCESS = Path("/proc/self")


def resident_mb() -> float:
    """Return the memory that the process holds now, in MB (1e6 bytes). Linux only."""
    return _account("VmRSS")


def peak_resident_mb() -> float:
    """Return the most memory that the process has held, in MB (1e6 bytes)."""
    if (_PROCESS / "status").exists():
        return _account("VmHWM")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def restart_peak() -> None:
    """Let :func:`peak_resident_mb` measure from now on. Linux only."""
    (_PROCESS / "clear_refs").write_text("5")


def _account(name: str) -> float:
    lines = (_PROCESS / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024 / 1e6
