"""How many kernels a training step launches."""

from __future__ import annotations

from typing import Any

import torch
from lightning import Callback, Trainer
from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile


class KernelLaunches(Callback):
    """Counts the kernels of one step on a GPU, once a run: those of the graph, or of the run's third batch as the profiler sees them.

    Attributes:
        count: kernels a step, filling the next slot included; None until it is known, and on a CPU.
    """

    _BATCH = 2  # kernels are compiled and the optimiser's state is made before

    def __init__(self) -> None:
        self.count: int | None = None
        self._profiler: profile | None = None
        self._batches = 0

    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Starts the profiler where a plain step is to be counted."""
        if self.count is None and self._batches == self._BATCH and pl_module.device.type == "cuda" and pl_module.steps.prepared is None:
            self._profiler = profile(activities=[ProfilerActivity.CUDA], acc_events=True)
            self._profiler.start()
        self._batches += 1

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Takes the number."""
        if self._profiler is not None:
            torch.cuda.synchronize(pl_module.device)
            self._profiler.stop()
            self.count = sum(is_kernel(event) for event in self._profiler.events())
            self._profiler = None
        if self.count is None and pl_module.steps.prepared is not None:
            self.count = pl_module.steps.prepared.num_kernels


def is_kernel(event: Any) -> bool:
    """Whether an event of PyTorch's profiler is a kernel on a GPU; copies and fills are not."""
    return event.device_type == DeviceType.CUDA and not event.name.startswith(("Memcpy", "Memset"))
