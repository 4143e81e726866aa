"""Whole training epochs through the Trainer: what a user waits for."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lightning import Callback

from molgcn.config import Config, parse
from molgcn.data.datamodule import MoleculeDataModule
from molgcn.training.metrics_csv import MetricsCSV
from molgcn.training.throughput import Throughput
from molgcn.training.train import build_module
from molgcn.training.trainer import build_trainer


class EpochClock(Callback):
    """When each training epoch started."""

    def __init__(self) -> None:
        self.starts: list[float] = []

    def on_train_epoch_start(self, *args: Any) -> None:
        """Looks at the clock."""
        self.starts.append(time.perf_counter())


@dataclass(frozen=True)
class EpochRow:
    """Median seconds of an epoch of one configuration, and its molecules a second."""

    backend: str
    loader: str
    num_layers: int
    hidden_channels: int
    norm: str | None
    batch_size: int
    molecules: int
    seconds: float

    @property
    def rate(self) -> float:
        """Molecules a second."""
        return self.molecules / self.seconds


def epoch_seconds(values: dict[str, Any], epochs: int, warm_up: int) -> EpochRow:
    """Trains without validation and checkpoints, logging every 50 steps to metrics.csv.

    Args:
        values: the configuration's keys.
        epochs: timed, from the start of one to the start of the next; their median counts.
        warm_up: epochs before them.
    """
    trainer_options = {"max_epochs": warm_up + epochs + 1, "log_every_n_steps": 50, "limit_val_batches": 0, "num_sanity_val_steps": 0}
    quiet = {"enable_progress_bar": False, "enable_model_summary": False}
    config = parse(Config, {**values, "trainer": {**trainer_options, **quiet, **values.get("trainer", {})}, "logger": {"name": "csv"}})
    data = MoleculeDataModule(config.dataset, config.loader, config.backend.name, config.seed)
    module = build_module(config, data)
    clock = EpochClock()
    with tempfile.TemporaryDirectory() as folder:
        loggers = [MetricsCSV(Path(folder) / "metrics.csv", module.target_names)]
        build_trainer(config.trainer, [Throughput(), clock], list(loggers), Path(folder)).fit(module, datamodule=data)
    durations = [end - start for start, end in zip(clock.starts[warm_up:], clock.starts[warm_up + 1 :], strict=False)]
    model = config.model
    return EpochRow(
        module.model.backend.name,
        data.loader_name,
        model.num_layers,
        model.hidden_channels,
        model.norm,
        config.dataset.batch_size,
        len(data.dataset.splits["train"]),
        statistics.median(durations),
    )


def compare(
    variants: Sequence[dict[str, Any]], backends: Sequence[tuple[str, str]], epochs: int, warm_up: int, rounds: int
) -> list[EpochRow]:
    """Every variant on every (backend, loader), `rounds` times in turn; the median round counts."""
    rows = []
    for values in variants:
        measured: dict[tuple[str, str], list[EpochRow]] = {pair: [] for pair in backends}
        for _ in range(rounds):
            for backend, loader in backends:
                chosen = {**values, "backend": {"name": backend}, "loader": {"name": loader}}
                measured[backend, loader].append(epoch_seconds(chosen, epochs, warm_up))
        rows += [sorted(found, key=lambda row: row.seconds)[len(found) // 2] for found in measured.values()]
    return rows
