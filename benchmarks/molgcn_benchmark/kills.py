"""Kill processes of a training on two CPU processes at random moments, resume it each time, and compare it with one that nobody killed."""

from __future__ import annotations

import csv
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch

from molgcn.training.checkpoint_file import load_checkpoint

TRAIN = Path(__file__).parents[2] / "train.py"
BOUND = 60.0  # seconds in which the other process ends
_OPTIONS = [
    *("dataset.subset=600", "dataset.targets=[logp]", "dataset.batch_size=8", "model.hidden_channels=16", "model.num_layers=2"),
    *("model.dropout=0.2", "trainer.accelerator=cpu", "trainer.devices=2", "training.checkpoint_seconds=0.2", "training.bootstrap=0"),
    *("training.baseline=none", "logger=csv"),
]
_SAYS = re.compile(r"^(Error:|Terminated|Interrupted|Traceback)", re.MULTILINE)


@dataclass
class Kills:
    """What was seen of one training and its kills.

    Attributes:
        killed: number of kills by what they hit: the "first" process, the "second", "both", or the "only one" that there was yet.
        slowest: longest time in seconds from a kill to the end of all processes.
        left: number of kills that left a process.
        messages: number of messages that were printed.
        steps: optimiser steps of the training.
        faults: what should not have been, in words.
    """

    killed: dict[str, int] = field(default_factory=dict)
    slowest: float = 0.0
    left: int = 0
    messages: int = 0
    steps: int = 0
    faults: list[str] = field(default_factory=list)


def train_and_kill(work: Path, seed: int, epochs: int, most: int) -> Kills:
    """Train once without kills and once with at most `most`, and compare.

    Args:
        work: an empty folder for both runs.
        seed: the seed of the training and of the moments.
        epochs: epochs of the training.
        most: number of kills after which the training is left alone.
    """
    whole, killed, seen, draw = work / "whole", work / "killed", Kills(), random.Random(seed)
    options = [*_OPTIONS, f"seed={seed}", f"trainer.max_epochs={epochs}", f"dataset.cache_dir={work / 'cache'}"]
    began = time.monotonic()
    process = _start([*options, f"hydra.run.dir={whole}"], work / "whole.txt")
    _wait(lambda: (whole / "checkpoints" / "last.ckpt").exists() or process.poll() is not None, 300)
    to_start = time.monotonic() - began
    if process.wait(3600):
        raise RuntimeError((work / "whole.txt").read_text())
    last, steps = killed / "checkpoints" / "last.ckpt", 0
    while process := _start([f"resume={killed}"] if last.exists() else [*options, f"hydra.run.dir={killed}"], work / "killed.txt"):
        if sum(seen.killed.values()) < most:
            _wait_for_moment(process, last, to_start, draw)
        else:
            process.wait(3600)
        if process.poll() is not None:
            if process.returncode:
                seen.faults.append(f"ended with exit code {process.returncode}: {(work / 'killed.txt').read_text()[-2000:]}")
            break
        _kill(process, draw, seen, work / "killed.txt")
        if last.exists():
            now = load_checkpoint(last)["global_step"]  # whole, or this raises
            if now < steps:
                seen.faults.append(f"the last checkpoint went back from step {steps} to {now}")
            steps = now
    seen.faults += _differences(whole, killed)
    seen.steps = load_checkpoint(last)["global_step"] if last.exists() else 0
    return seen


def _start(arguments: list[str], log: Path) -> subprocess.Popen[bytes]:
    with open(log, "wb") as file:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.Popen([sys.executable, str(TRAIN), *arguments], stdout=subprocess.DEVNULL, stderr=file, env=environment)


def _wait_for_moment(process: subprocess.Popen[bytes], last: Path, to_start: float, draw: random.Random) -> None:
    """Wait for a random moment: one in four of all that come before training, the others in its first 1.5 seconds."""
    started, starting = time.time(), draw.random() < 0.25
    if not starting:
        _wait(lambda: process.poll() is not None or (last.exists() and last.stat().st_mtime > started), 300)
    until = time.monotonic() + draw.uniform(0, to_start if starting else 1.5)
    _wait(lambda: process.poll() is not None or time.monotonic() >= until, 300)


def _kill(process: subprocess.Popen[bytes], draw: random.Random, seen: Kills, log: Path) -> None:
    processes = [process.pid, *_children_of(process.pid)]
    chosen = draw.choice((processes[:1], processes[1:] or processes, processes))
    what = "only one" if len(processes) == 1 else "both" if len(chosen) == 2 else "first" if chosen[0] == process.pid else "second"
    for one in chosen:
        os.kill(one, signal.SIGKILL)
    began = time.monotonic()
    ended = _wait(lambda: process.poll() is not None and not any(map(_runs, processes)), BOUND)
    seconds, said, left = time.monotonic() - began, _SAYS.findall(log.read_text()), len(chosen) < len(processes)
    seen.killed[what] = seen.killed.get(what, 0) + 1
    seen.slowest = max(seen.slowest, seconds)
    seen.left, seen.messages = seen.left + left, seen.messages + len(said)
    if not ended:
        seen.faults.append(f"{what}: the other process still ran after {BOUND:.0f} s")
        for one in filter(_runs, processes):
            os.kill(one, signal.SIGKILL)
        process.wait()
    if said != ["Error:"] * left:
        seen.faults.append(f"{what}: {log.read_text()[-2000:]}")


def _children_of(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _wait(until: Callable[[], bool], seconds: float) -> bool:
    """Wait until something holds, at most some seconds, and return whether it does."""
    end = time.monotonic() + seconds
    while not (holds := until()) and time.monotonic() < end:
        time.sleep(0.005)
    return holds


def _differences(one: Path, other: Path) -> list[str]:
    """Return what differs between two finished runs, in words; rates and times may."""
    found = []
    for name in ("last.ckpt", "best.ckpt"):
        values = [load_checkpoint(folder / "checkpoints" / name) for folder in (one, other)]
        for key in ("state_dict", "optimizer_states", "global_step", "epoch"):
            if not _same(*(value[key] for value in values)):
                found.append(f"{key} of {name} differ")
    for name in ("metrics.csv", "predictions_test.csv"):
        if _rows(one / name) != _rows(other / name):
            found.append(f"{name} differ")
    files = [{str(path.relative_to(folder)) for path in folder.rglob("*")} for folder in (one, other)]
    return found + [f"{path} is in one of the folders" for path in sorted(files[0] ^ files[1])]


def _rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return [{name: value for name, value in row.items() if not name.startswith("throughput/")} for row in csv.DictReader(file)]


def _same(one: object, other: object) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return torch.equal(one, other)
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    return one == other
