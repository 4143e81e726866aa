"""Memory is read from Linux's accounting where it exists."""

import subprocess
import sys

import pytest

PEAK = "from molgcn.process.memory import peak_resident_mb; print(peak_resident_mb())"
HOLDS = """
from molgcn.process.memory import peak_resident_mb, resident_mb, restart_peak
restart_peak()
before = resident_mb()
held = b"x" * 64_000_000
holding = resident_mb()
del held
print(before, holding, resident_mb(), peak_resident_mb())
"""
STARTS_IT = "import subprocess, sys; held = b'x' * 600_000_000; subprocess.run([sys.executable, '-c', sys.argv[1]])"


def test_what_was_held_for_a_while_is_in_the_peak():
    """This runs in another process, since earlier tests' libraries and threads take and free memory meanwhile."""
    before, holding, after, peak = map(float, subprocess.check_output([sys.executable, "-c", HOLDS], text=True).split())
    assert holding == pytest.approx(before + 64, abs=4)
    assert after == pytest.approx(before, abs=4)
    assert peak == pytest.approx(before + 64, abs=4)


def test_the_peak_is_not_the_starting_process_s():
    """Otherwise a sweep's jobs would all report the peak of the process that started them."""
    peak = subprocess.check_output([sys.executable, "-c", STARTS_IT, PEAK], text=True)
    assert 1 < float(peak) < 300
