"""The memory that this process holds.

Linux keeps a new account with every program that is started. `getrusage` does not: it goes on from the most that the starting process held.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

_PROCESS = Path("/proc/self")


def resident_mb() -> float:
    """MB (1e6 bytes) that the process holds now; Linux."""
    return _account("VmRSS")


def peak_resident_mb() -> float:
    """The most MB (1e6 bytes) that the process has held."""
    if (_PROCESS / "status").exists():
        return _account("VmHWM")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak * 1024 / 1e6


def restart_peak() -> None:
    """From now on :func:`peak_resident_mb` is of what comes; Linux."""
    (_PROCESS / "clear_refs").write_text("5")


def _account(name: str) -> float:
    lines = (_PROCESS / "status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024 / 1e6
