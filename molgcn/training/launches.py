"""Count the kernels that a training step launches."""

from __future__ import annotations

from typing import Any

import torch
from lightning import Callback, Trainer
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile


class KernelLaunches(Callback):
    """Counts the kernels of one training step on a GPU, once a run.

    They are those of the CUDA graph, or where steps are not captured those that the profiler sees in the run's third batch.

    Attributes:
        count: kernels per step, those that fill the next slot included; None until it is known, and on a CPU.
    """

    _BATCH = 2  # earlier batches compile kernels and make the optimiser's state

    def __init__(self) -> None:
        self.count: int | None = None
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
