"""A process of a training that is killed ends the others with one message, and the run goes on from its last checkpoint."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from molgcn.training.checkpoint_file import load_checkpoint

ROOT = Path(__file__).parents[2]
OPTIONS = [
    *("dataset.subset=300", "dataset.targets=[logp]", "model.hidden_channels=16", "trainer.accelerator=cpu", "training.report=false"),
    *("logger=csv", "trainer.devices=2", "training.checkpoint_seconds=0"),
]


def children_of(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="processes are found in /proc")
@pytest.mark.parametrize(
    ("rank", "number", "message"),
    [
        (0, signal.SIGKILL, "Error: Process 1 of 2 has ended"),
        (1, signal.SIGKILL, "Error: Process 2 of 2 was killed by SIGKILL"),
        (0, signal.SIGTERM, "Terminated."),
    ],
)
def test_one_that_is_killed_ends_all(rank, number, message, cli, tmp_path):
    run = tmp_path / "run"
    command = [sys.executable, str(ROOT / "train.py"), *OPTIONS, "trainer.max_epochs=10000", f"hydra.run.dir={run}"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment, text=True) as process:
        start = time.monotonic()
        while not (run / "checkpoints" / "last.ckpt").exists() and process.poll() is None and time.monotonic() - start < 120:
            time.sleep(0.1)
        (child,) = children_of(process.pid)
        os.kill((process.pid, child)[rank], number)
        _, printed = process.communicate(timeout=60)
        while Path(f"/proc/{child}").exists() and time.monotonic() - start < 180:
            time.sleep(0.1)
    assert process.returncode != 0
    assert not Path(f"/proc/{child}").exists()
    assert message in printed and f"resume={run}" in printed and "Traceback" not in printed
    assert printed.count("Continue ") == (2 if number == signal.SIGTERM else 1)  # both get SIGTERM
    epochs = load_checkpoint(run / "checkpoints" / "last.ckpt")["epoch"] + 2
    code, out, err = cli(f"resume={run}", f"trainer.max_epochs={epochs}", "trainer.devices=1")
    assert code == 0, out + err
