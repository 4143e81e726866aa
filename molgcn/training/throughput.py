"""Log loss and throughput at intervals, without waiting for the device at each step, and count the kernels of a step."""

from __future__ import annotations

import time
from typing import Any

import torch
from lightning import Callback, Trainer
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from molgcn.data.loader import MoleculeLoader
from molgcn.process.memory import peak_resident_mb
from molgcn.training.module import MoleculeModule
from molgcn.training.training_loss import check_loss


class Throughput(Callback):
    """Logs training loss and throughput every `trainer.log_every_n_steps` batches and at each epoch's end.

    The values are `train/loss`, `lr`, `throughput/molecules_per_second`, `throughput/atoms_per_second`, `throughput/step_ms`,
    `throughput/data_wait` (share of the time spent waiting for batches), `throughput/memory_mb` (see :func:`peak_memory_mb`) and on a GPU
    `throughput/kernel_launches` (kernels per step), if `launches` counts them. Loss, rates and times are those since the last values.
    """

    def __init__(self, launches: KernelLaunches | None = None) -> None:
        self.launches = launches
        self.loader: MoleculeLoader | None = None
        self.rates: list[float] = []  # molecules per second of each interval
        self.atoms_per_row = 1.0
        self._reset()

    def _reset(self) -> None:
        self.start, self.batches, self.molecules, self.atoms = time.perf_counter(), 0, 0, 0
        self.waited = self.loader.waited if self.loader else 0.0

    def on_train_epoch_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Start the clock anew, so that validation and checkpoints do not count into the training rate."""
        self._reset()

    def on_train_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Start the clock of a run, or of the epoch in which a resumed run goes on."""
        data = trainer.datamodule  # type: ignore[attr-defined]
        self.loader = data.train_loader
        if self.loader is not None:
            rows = self.loader.molecules.num_nodes
            self.atoms_per_row = data.part("train").num_nodes / rows  # the mean over all molecules, exact for a whole epoch
        self._reset()

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count the batch, and log at the interval."""
        self.batches += 1
        self.molecules += batch.num_graphs
        self.atoms += batch.num_nodes
        interval = trainer.log_every_n_steps  # type: ignore[attr-defined]
        if trainer.is_last_batch or (interval and (batch_idx + 1) % interval == 0):
            self._log(trainer, pl_module)

    def _log(self, trainer: Trainer, module: MoleculeModule) -> None:
        check_loss(trainer, module)
        loss = module.train_loss.compute_and_reset(trainer.strategy)  # reads the device, so that the clock below is honest
        seconds = time.perf_counter() - self.start
        waited = (self.loader.waited if self.loader else 0.0) - self.waited
        rate = self.molecules * trainer.world_size / seconds
        self.rates.append(rate)
        values = {
            "train/loss": loss,
            "lr": trainer.optimizers[0].param_groups[0]["lr"],
            "throughput/molecules_per_second": rate,
            "throughput/atoms_per_second": self.atoms * self.atoms_per_row * trainer.world_size / seconds,
            "throughput/step_ms": 1e3 * seconds / self.batches,
            "throughput/data_wait": waited / seconds,
            "throughput/memory_mb": peak_memory_mb(module.device),
        }
        if self.launches is not None and self.launches.count is not None:
            values["throughput/kernel_launches"] = self.launches.count
        module.log_now(values)
        self._reset()


def peak_memory_mb(device: torch.device) -> float:
    """Return the peak memory in MB (1e6 bytes): that allocated on a GPU, else the process's resident memory."""
    if device.type == "cuda":
        # max_memory_allocated lists 160 other numbers, in the time of two captured steps
        return torch.cuda.memory_stats_as_nested_dict(device)["allocated_bytes"]["all"]["peak"] / 1e6
    return peak_resident_mb()


class KernelLaunches(Callback):
    """Counts the kernels of one training step on a GPU, once a run.

    They are those of the CUDA graph, or where steps are not captured those that the profiler sees in the run's third batch.
    """

    _BATCH = 2  # earlier batches compile kernels and make the optimiser's state

    def __init__(self) -> None:
        self.count: int | None = None  # kernels per step, those that fill the next slot included; None until it is known, and on a CPU
        self._profiler: profile | None = None
        self._batches = 0

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Start the profiler where a plain step is to be counted."""
        if self.count is None and self._batches == self._BATCH and pl_module.device.type == "cuda" and pl_module.steps.prepared is None:
            self._profiler = profile(activities=[ProfilerActivity.CUDA], acc_events=True)
            self._profiler.start()
        self._batches += 1

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Take the number from the profiler or the graph."""
        if self._profiler is not None:
            torch.cuda.synchronize(pl_module.device)
            self._profiler.stop()
            self.count = sum(is_kernel(event) for event in self._profiler.events())
            self._profiler = None
        if self.count is None and pl_module.steps.prepared is not None:
            self.count = pl_module.steps.prepared.num_kernels


def is_kernel(event: Any) -> bool:
    """Return whether an event of PyTorch's profiler is a kernel on a GPU; copies and fills are not."""
    return event.device_type == DeviceType.CUDA and not event.name.startswith(("Memcpy", "Memset"))
