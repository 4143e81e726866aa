"""Linux's account, which the product reads where there is one."""

import subprocess
import sys

import pytest

from molgcn.resident_set import peak_resident_mb, resident_mb, restart_peak

PEAK = "from molgcn.resident_set import peak_resident_mb; print(peak_resident_mb())"
STARTS_IT = "import subprocess, sys; held = b'x' * 600_000_000; subprocess.run([sys.executable, '-c', sys.argv[1]])"


def test_what_was_held_for_a_while_is_in_the_peak():
    restart_peak()
    before = resident_mb()
    held = b"x" * 64_000_000
    assert resident_mb() == pytest.approx(before + 64, abs=4)
    del held
    assert resident_mb() == pytest.approx(before, abs=4)
    assert peak_resident_mb() == pytest.approx(before + 64, abs=4)


def test_the_peak_is_not_the_starting_process_s():
    """A sweep's jobs would all report what the process that started them once held."""
    peak = subprocess.check_output([sys.executable, "-c", STARTS_IT, PEAK], text=True)
    assert 1 < float(peak) < 300
