"""Compare the folders of two runs, and make runs that are killed after every checkpoint."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lightning import Callback, Trainer

from molgcn.config.run import Config
from molgcn.predict import predict_smiles
from molgcn.screening.ensemble import Ensemble
from molgcn.training.checkpoint_file import LAST, load_checkpoint
from molgcn.training.checkpoint_io import AtomicCheckpointIO
from molgcn.training.result import RunResult
from molgcn.training.train import train


def log_of(folder: Path) -> list[dict[str, str]]:
    """Return the rows of metrics.csv without the timings."""
    with open(folder / "metrics.csv", newline="") as file:
        return [{key: value for key, value in row.items() if not key.startswith("throughput/")} for row in csv.DictReader(file)]


def assert_same_run(one: Path, other: Path, names: Sequence[str] = ("last.ckpt", "best.ckpt")) -> None:
    """Assert that runs have the same weights, bit for bit, after the same steps, and the same log."""
    for name in names:
        mine, theirs = (load_checkpoint(folder / "checkpoints" / name) for folder in (one, other))
        assert mine["global_step"] == theirs["global_step"] > 0
        assert mine["epoch"] == theirs["epoch"]
        assert mine["state_dict"].keys() == theirs["state_dict"].keys()
        assert [key for key in mine["state_dict"] if not torch.equal(mine["state_dict"][key], theirs["state_dict"][key])] == []
    assert log_of(one) == log_of(other)


class CheckpointsBy(Callback):
    """A callback that has a run's checkpoints written by a test's plugin."""

    def __init__(self, io: AtomicCheckpointIO) -> None:
        self.io = io

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        trainer.strategy.checkpoint_io = self.io


class KeepCopies(AtomicCheckpointIO):
    """A checkpoint plugin that copies the run's folder after every `last.ckpt`, as a kill at that moment would leave it.

    Attributes:
        copies: copies of the folder, in order.
    """

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[Path] = []

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        super().save_checkpoint(checkpoint, path, storage_options)
        checkpoints, folder = list(Path(path).parents)[:2]
        if Path(path) == checkpoints / LAST:
            self.wait()
            self.copies.append(folder.with_name(f"killed-{len(self.copies)}"))
            shutil.copytree(folder, self.copies[-1])


def train_and_copy(config: Config, folder: Path) -> tuple[RunResult, list[Path]]:
    """Train in `folder`, and return the result and copies of the folder after every checkpoint, as a kill would leave it."""
    io = KeepCopies()
    return train(config, folder, [CheckpointsBy(io)]), io.copies


def rows_of(path):
    """Return the rows of a CSV file."""
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def check_columns(folder, evaluated, expected):
    """Check that a run, `evaluate` in the folder `evaluated`, and `predict` have the same columns of predictions and the same numbers."""
    mine, theirs = rows_of(folder / "predictions_test.csv"), rows_of(evaluated / "predictions_test.csv")
    found = predict_smiles(Ensemble.load([folder]), [row["smiles"] for row in mine], num_workers=0)
    columns = [*found.columns, *found.beside]
    assert columns == expected
    for rows in (mine, theirs):
        assert [name for name in rows[0] if name not in ("row", "smiles", *found.names)] == columns
        for name, values in {**dict(zip(found.columns, found.table.T, strict=True)), **found.beside}.items():
            if values.dtype.kind == "f":
                np.testing.assert_allclose([float(row[name]) for row in rows], values, rtol=1e-4, atol=1e-5)
            else:
                assert [row[name] for row in rows] == values.tolist()


def split_of(folder):
    """Return the split of a run's folder."""
    return json.loads((folder / "splits.json").read_text())


class InterruptedAfter(Callback):
    """A callback that interrupts as Ctrl-C does, after a number of batches of all trainings together."""

    def __init__(self, batches):
        self.left = batches

    def on_train_batch_end(self, *args):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
