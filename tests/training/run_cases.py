"""What two runs left behind, compared, and runs that are killed after every checkpoint."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from molgcn.config import Config
from molgcn.training.checkpoint import RunCheckpoint, load_checkpoint
from molgcn.training.result import RunResult
from molgcn.training.train import train


def log_of(folder: Path) -> list[dict[str, str]]:
    """The rows of metrics.csv without the timings."""
    with open(folder / "metrics.csv", newline="") as file:
        return [{key: value for key, value in row.items() if not key.startswith("throughput/")} for row in csv.DictReader(file)]


def assert_same_run(one: Path, other: Path) -> None:
    """The same weights, bit for bit, after the same steps, and the same log."""
    for name in ("last.ckpt", "best.ckpt"):
        mine, theirs = (load_checkpoint(folder / "checkpoints" / name) for folder in (one, other))
        assert mine["global_step"] == theirs["global_step"] > 0
        assert mine["epoch"] == theirs["epoch"]
        assert mine["state_dict"].keys() == theirs["state_dict"].keys()
        assert [key for key in mine["state_dict"] if not torch.equal(mine["state_dict"][key], theirs["state_dict"][key])] == []
    assert log_of(one) == log_of(other)


def train_and_copy(config: Config, folder: Path) -> tuple[RunResult, list[Path]]:
    """The run in `folder`, and copies of it as it was after every checkpoint, which is how a run that is killed there leaves it."""
    copies: list[Path] = []
    save = RunCheckpoint._save

    def keep_a_copy(self: RunCheckpoint, trainer: Any, path: Path) -> None:
        save(self, trainer, path)
        trainer.strategy.checkpoint_io.wait()
        if path == self.last_path:
            copies.append(folder.with_name(f"killed-{len(copies)}"))
            shutil.copytree(self.folder.parent, copies[-1])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunCheckpoint, "_save", keep_a_copy)
        return train(config, folder), copies
