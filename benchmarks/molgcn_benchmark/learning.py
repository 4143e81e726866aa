"""Train both backends from the same seeds for the same epochs, and record the loss over epochs and over wall time."""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from molgcn.tasks.regression import Regression
from molgcn.training.build import quieten
from molgcn.training.throughput import Throughput
from molgcn.training.trainer import build_trainer
from molgcn_benchmark.epochs import EpochClock, device_of, prepare
from molgcn_benchmark.recorder import Recorder
from molgcn_benchmark.results import Row, Table

KEY = ("dataset", "device", "backend", "num_layers", "batch_size", "hidden_channels", "norm", "lr", "epochs", "seed", "epoch")
BACKENDS = ("fused", "pyg")  # each with its own loader: the same molecules in the same order


def measure(values: dict[str, Any], dataset: str, table: Table, epochs: int, seeds: Sequence[int], workers: int = 0) -> Iterator[Row]:
    """Train the runs that `table` lacks, add a row for each epoch and yield the last row of each run.

    A row has `seconds` (since training started, validation included), `train_loss`, `val_loss` (standardised) and `val_mae` (mean over the
    targets, in their units).

    Args:
        values: keys of the configuration.
        dataset: name of the molecules.
        table: table with the key columns :data:`KEY`.
        epochs: number of epochs of each run.
        seeds: seeds of the weights and of the order of molecules.
        workers: number of worker processes of PyG's DataLoader.
    """
    quieten()
    model = values["model"]
    sizes = (model["num_layers"], values["dataset"]["batch_size"], model["hidden_channels"], model["norm"], values["optimizer"]["lr"])
    for seed in seeds:
        for backend in BACKENDS:
            run = dict(zip(KEY, (dataset, device_of(values).type, backend, *sizes, epochs, seed), strict=False))
            if table.find(**run, epoch=epochs) is not None:
                continue
            chosen = {"backend": {"name": backend}, "loader": {"num_workers": workers if backend == "pyg" else 0}, "seed": seed}
            for row in _curve({**values, **chosen}, epochs):
                last = table.add({**run, **row})
            yield last


def _curve(values: dict[str, Any], epochs: int) -> Iterator[Row]:
    config, data, build = prepare(values, {"max_epochs": epochs, "log_every_n_steps": 0})
    module, clock, recorder = build(), EpochClock(), Recorder()
    with tempfile.TemporaryDirectory() as folder:
        build_trainer(config.trainer, [Throughput(), clock], [recorder], Path(folder)).fit(module, datamodule=data)
    trained = {row["epoch"]: row for row in recorder.rows if "train/loss" in row}
    for row in recorder.rows:
        if "val/loss" not in row:
            continue
        errors = [value for name, value in row.items() if name.startswith(f"val/{Regression.metrics[0]}/") and not math.isnan(value)]
        yield {
            "epoch": int(row["epoch"]) + 1,
            "seconds": round(row["seconds"] - clock.starts[0], 4),
            "train_loss": round(trained[row["epoch"]]["train/loss"], 7),
            "val_loss": round(row["val/loss"], 7),
            "val_mae": round(statistics.fmean(errors), 7) if errors else None,
        }


def final_errors(rows: Sequence[Row]) -> dict[str, tuple[float, float, int]]:
    """Return mean, standard deviation and number of the final validation MAEs by backend, for rows of one configuration."""
    found = {}
    for backend in BACKENDS:
        values = [row["val_mae"] for row in rows if row["backend"] == backend and row["epoch"] == row["epochs"]]
        if values:
            found[backend] = (statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else math.nan, len(values))
    return found
