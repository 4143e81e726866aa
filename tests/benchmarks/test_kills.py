"""A training on two processes that is killed at random moments ends as one that nobody killed."""

from pathlib import Path

import pytest

from molgcn_benchmark.kills import train_and_kill


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are found in /proc")
def test_three_kills_change_nothing(tmp_path):
    seen = train_and_kill(tmp_path, seed=2, epochs=40, most=3)
    assert seen.faults == []
    assert sum(seen.killed.values()) >= 1 and seen.messages == seen.left
    assert seen.steps == 40 * 30  # of 8 molecules on each of two processes
