"""Time whole training epochs through the Trainer, as a user sees them."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, Trainer
from lightning.pytorch.callbacks import LambdaCallback

from molgcn.config.run import Config, parse
from molgcn.data.datamodule import MoleculeDataModule
from molgcn.nn.batch_layout import batch_layout
from molgcn.training.build import build_module, quieten
from molgcn.training.loggers import MetricsCSV
from molgcn.training.module import MoleculeModule
from molgcn.training.throughput import KernelLaunches, Throughput
from molgcn.training.trainer import build_trainer
from molgcn_benchmark.measure import milliseconds, synchronize
from molgcn_benchmark.recorder import Recorder
from molgcn_benchmark.results import Row, Table

KEY = ("dataset", "device", "backend", "loader", "workers", "num_layers", "batch_size", "hidden_channels", "norm")
PAIRS = (("fused", "packed"), ("pyg", "packed"), ("pyg", "pyg"))
LOG_STEPS = 50
Train = Callable[[dict[str, Any], int, int], Row]
_QUIET = {"num_sanity_val_steps": 0, "enable_progress_bar": False, "enable_model_summary": False}


class EpochClock(Callback):
    """A callback that records when epochs start, when the first step ends and how long validations take.

    Args:
        epochs: number of epochs after which training stops, at the start of the next one. None leaves the end to the Trainer.

    Attributes:
        starts: start of each training epoch, in seconds of `time.perf_counter`.
        first_step: end of the first training step with the device idle, on the same clock.
        validations: duration of each validation, in seconds.
    """

    def __init__(self, epochs: int | None = None) -> None:
        self.epochs = epochs
        self.starts: list[float] = []
        self.first_step: float | None = None
        self.validations: list[float] = []

    def on_train_epoch_start(self, trainer: Trainer, *args: Any) -> None:
        """Record the time, and wait for the end of the first step."""
        if not self.starts:
            first = LambdaCallback(on_train_batch_end=lambda trainer, module, *_: self._end_first_step(trainer, module, first))
            trainer.callbacks = [*trainer.callbacks, first]  # type: ignore[attr-defined]
        self.starts.append(time.perf_counter())
        if self.epochs is not None and len(self.starts) > self.epochs:
            trainer.should_stop = True

    def _end_first_step(self, trainer: Trainer, module: Any, first: Callback) -> None:
        """Record the time of the first step once the device is idle, and listen to no later batch, which would take the Trainer longer."""
        synchronize(module.device)
        self.first_step = time.perf_counter()
        trainer.callbacks = [callback for callback in trainer.callbacks if callback is not first]  # type: ignore[attr-defined]

    def on_validation_epoch_start(self, *args: Any) -> None:
        """Record the time."""
        self._validation = time.perf_counter()

    def on_validation_epoch_end(self, *args: Any) -> None:
        """Record the duration; the metrics have been read from the device by now, so it is idle."""
        self.validations.append(time.perf_counter() - self._validation)

    def durations(self, warm_up: int) -> list[float]:
        """Return the seconds from the start of each epoch after the first `warm_up` to the start of the next."""
        return [end - start for start, end in zip(self.starts[warm_up:], self.starts[warm_up + 1 :], strict=False)]


def measure(
    variants: Sequence[dict[str, Any]],
    pairs: Sequence[tuple[str, str]],
    dataset: str,
    table: Table,
    epochs: int = 3,
    warm_up: int = 1,
    rounds: int = 1,
    workers: int = 0,
    train: Train | None = None,
) -> Iterator[Row]:
    """Measure the rows that `table` lacks, add each to it and yield it.

    A row has `epoch_ms` (wall clock from the start of one training epoch to the start of the next inside `Trainer.fit`, logging every 50
    steps), `step_ms`, `molecules_per_second`, `data_wait` (share), `kernel_launches` (on a GPU), `memory_mb`, `validation_ms`,
    `checkpoint_ms` and `start_up_s` (from packed molecules to the end of the first step, compiling included).

    Args:
        variants: configuration keys, one mapping for each configuration.
        pairs: pairs (backend, loader).
        dataset: name of the molecules.
        table: table with the key columns :data:`KEY`.
        epochs: number of timed epochs, whose median counts.
        warm_up: number of epochs before the timed ones.
        rounds: number of rounds, each of all pairs in turn; the median round counts.
        workers: number of worker processes of PyG's DataLoader.
        train: function that trains a configuration for a number of timed epochs after a number of warm-up epochs, and returns the columns.
            None is :func:`timed_training`.
    """
    quieten()
    train = train or timed_training
    for values in variants:
        missing = [pair for pair in pairs if table.find(**_key(values, *pair, dataset, workers)) is None]
        found: dict[tuple[str, str], list[Row]] = {pair: [] for pair in missing}
        for _ in range(rounds):
            for backend, loader in missing:
                chosen = {"backend": {"name": backend}, "loader": {"name": loader, "num_workers": workers if loader == "pyg" else 0}}
                found[backend, loader].append(train({**values, **chosen}, epochs, warm_up))
        for pair, rows in found.items():
            row = sorted(rows, key=lambda row: row["epoch_ms"])[len(rows) // 2]
            yield table.add({**_key(values, *pair, dataset, workers), **row, "epochs": epochs})


def _key(values: dict[str, Any], backend: str, loader: str, dataset: str, workers: int) -> Row:
    model = values["model"]
    sizes = (model["num_layers"], values["dataset"]["batch_size"], model["hidden_channels"], model["norm"])
    return dict(zip(KEY, (dataset, device_of(values).type, backend, loader, workers if loader == "pyg" else 0, *sizes), strict=True))


def device_of(values: dict[str, Any]) -> torch.device:
    """Return the device that the Trainer will choose for a configuration."""
    cpu = values.get("trainer", {}).get("accelerator") == "cpu" or not torch.cuda.is_available()
    return torch.device("cpu" if cpu else "cuda")


def prepare(values: dict[str, Any], options: dict[str, Any]) -> tuple[Config, MoleculeDataModule, Callable[[], MoleculeModule]]:
    """Return a configuration, its data module and the function that builds its module, for a Trainer with these options."""
    config = parse(Config, {**values, "trainer": {**_QUIET, **options, **values.get("trainer", {})}, "logger": {"name": "csv"}})
    backend = config.backend
    choose_layout = partial(batch_layout, config.model, backend.name, backend.strategy)
    data = MoleculeDataModule(config.dataset, config.loader, backend.name, config.seed, choose_layout)
    return config, data, lambda: build_module(config, data)


def timed_training(values: dict[str, Any], epochs: int, warm_up: int) -> Row:
    """Train a configuration and return the columns of its row that :func:`measure` names.

    Args:
        values: the configuration.
        epochs: the number of epochs that are timed.
        warm_up: the number of epochs before these.
    """
    options = {"max_epochs": warm_up + epochs + 1, "log_every_n_steps": LOG_STEPS, "limit_val_batches": 0}
    config, data, build = prepare(values, options)
    clock, launches, recorder = EpochClock(warm_up + epochs), KernelLaunches(), Recorder()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    start = time.perf_counter()
    module = build()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        trainer = build_trainer(
            config.trainer,
            [launches, Throughput(launches), clock, writes := CheckpointWrites(path / "last.ckpt")],
            [MetricsCSV(path / "metrics.csv", module.task.keys("val")), recorder],
            path,
        )
        trainer.fit(module, datamodule=data)
        steps = trainer.num_training_batches
        validating = build_trainer({**config.trainer, "limit_val_batches": 1.0}, [clock], [], path)
        for _ in range(3):
            validating.validate(module, datamodule=data, verbose=False)
    seconds = statistics.median(clock.durations(warm_up))
    assert clock.first_step is not None
    molecules = len(data.dataset.splits["train"])
    return {
        "molecules": molecules,
        "epoch_ms": round(1e3 * seconds, 3),
        "step_ms": round(1e3 * seconds / steps, 4),
        "molecules_per_second": round(molecules / seconds),
        "data_wait": round(statistics.median(recorder.values("throughput/data_wait")), 4),
        "kernel_launches": launches.count,
        "memory_mb": round(recorder.values("throughput/memory_mb")[-1], 1),
        "validation_ms": round(1e3 * statistics.median(clock.validations), 2),
        "checkpoint_ms": round(statistics.median(writes.milliseconds), 2),
        "start_up_s": round(clock.first_step - start, 3),
    }


class CheckpointWrites(Callback):
    """A callback that times three writes of the run's checkpoint when training ends, each until it is on disk.

    During training a checkpoint is written in the background, so its time could not be seen there.

    Args:
        path: file to write.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.milliseconds: list[float] = []

    def on_train_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Record the time of each write."""

        def save() -> None:
            trainer.save_checkpoint(self.path)
            trainer.strategy.checkpoint_io.wait()  # type: ignore[attr-defined]

        self.milliseconds = [milliseconds(save, pl_module.device) for _ in range(3)]
