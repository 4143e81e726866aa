"""Time trainings that run side by side on one device, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import statistics
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import torch
from lightning import Trainer

from molgcn.data.workers import available_cores
from molgcn.training.train import train
from molgcn_benchmark.epochs import EpochClock
from molgcn_benchmark.networks import QUIET, configuration
from molgcn_benchmark.report import Sheet
from molgcn_benchmark.results import Row

KEY = ("device", "mps", "processes")
WAIT = 300  # seconds after which a process that waits for the others gives up
_barrier: Barrier | None = None  # of a worker process


class CommonStart(EpochClock):
    """A clock of epochs that starts only once all processes have trained their first epochs.

    Args:
        barrier: where the processes wait for each other.
        warm_up: number of epochs before.
        epochs: number of timed epochs, after which training stops.

    Attributes:
        device: kind of the device, such as "cuda".
        molecules: number of molecules in training.
    """

    def __init__(self, barrier: Barrier, warm_up: int, epochs: int) -> None:
        super().__init__(warm_up + epochs)
        self.barrier = barrier
        self.warm_up = warm_up

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Note what is trained where."""
        self.device = pl_module.device.type
        self.molecules = len(trainer.datamodule.dataset.splits["train"])  # type: ignore[attr-defined]

    def on_train_epoch_start(self, trainer: Trainer, *args: Any) -> None:
        """Record the time, at the first timed epoch after waiting."""
        if len(self.starts) == self.warm_up:
            self.barrier.wait()
        super().on_train_epoch_start(trainer, *args)


def measure(overrides: Sequence[str], processes: int, epochs: int, warm_up: int) -> Row:
    """Train with the seeds 0, 1, ... at the same time and return a row.

    A row has `device`, `processes`, `epochs`, `epoch_s` (the median epoch, validation included, of the median process), `slowest_s` (that
    of the slowest process) and `molecules_per_second` (of all processes together).

    Args:
        overrides: overrides of `python train.py`.
        processes: number of trainings.
        epochs: number of timed epochs.
        warm_up: number of epochs before them.
    """
    threads = max(1, available_cores() // processes)  # as launcher=joblib does
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(processes, timeout=WAIT)
    with ProcessPoolExecutor(processes, context, initializer=_start, initargs=(barrier, threads)) as executor:
        runs = [executor.submit(_train, [*overrides, f"seed={seed}"], epochs, warm_up) for seed in range(processes)]
        try:
            done = [run.result() for run in as_completed(runs)]
        except BaseException:
            barrier.abort()  # no process waits for one that has failed
            raise
    seconds = [statistics.median(durations) for _, _, durations in done]
    return {
        "device": done[0][0],
        "processes": processes,
        "epochs": epochs,
        "epoch_s": round(statistics.median(seconds), 4),
        "slowest_s": round(max(seconds), 4),
        "molecules_per_second": round(sum(molecules * epochs / sum(durations) for _, molecules, durations in done)),
    }


def _start(barrier: Barrier, threads: int) -> None:
    global _barrier
    _barrier = barrier
    torch.set_num_threads(threads)


def _train(overrides: Sequence[str], epochs: int, warm_up: int) -> tuple[str, int, list[float]]:
    """Train once and return the kind of device, the number of molecules in training and the seconds of each timed epoch."""
    assert _barrier is not None
    clock = CommonStart(_barrier, warm_up, epochs)
    with tempfile.TemporaryDirectory() as folder:
        train(configuration([*QUIET, *overrides]), Path(folder) / "run", [clock])
    return clock.device, clock.molecules, clock.durations(warm_up)


def sheet(rows: Sequence[Row]) -> Sheet:
    """Return a table with a line for each number of processes, each beside one process alone.

    Args:
        rows: rows of :func:`measure`, with a column `mps` that says whether MPS ran.
    """
    header = ["MPS", "processes", "s an epoch", "slowest", "molecules/s of all", "times one alone"]
    cells = []
    for row in sorted(rows, key=lambda row: (row["mps"], row["processes"])):
        alone = [one["molecules_per_second"] for one in rows if one["processes"] == 1 and one["device"] == row["device"]]
        gain = f"{row['molecules_per_second'] / max(alone):.2f}" if alone else ""
        numbers = [str(row["processes"]), f"{row['epoch_s']:.3f}", f"{row['slowest_s']:.3f}", f"{row['molecules_per_second']:,}"]
        cells.append([row["mps"], *numbers, gain])
    return Sheet("Trainings side by side", header, cells, 1)
