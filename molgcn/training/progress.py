"""Show the progress of training: one line per epoch, and a bar on a terminal. Both count epochs from 1."""

from __future__ import annotations

import time
from typing import Any

from lightning import Callback, Trainer
from lightning.pytorch.callbacks import RichProgressBar

from molgcn.errors import shown
from molgcn.metrics import error_text, metric_title

_DRAWN = 10  # times a second


class EpochLine(Callback):
    """Prints a line after every epoch: its number, the validation loss, the first metric of the tables with its unit, and its time."""

    def on_train_epoch_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Start the epoch's clock."""
        self.start = time.perf_counter()

    on_train_start = on_train_epoch_start  # of an epoch that a resumed run completes

    def on_train_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Print the line on the first process."""
        if not trainer.is_global_zero:
            return
        values = trainer.callback_metrics
        parts = [f"epoch {trainer.current_epoch + 1}"]
        if "val/loss" in values:
            parts.append(f"val/loss {float(values['val/loss']):.4f}")
            each = [(part, part.shown_first(pl_module.monitor.key)) for part in pl_module.task.parts]
            targets = [(*one, *target) for one in each for target in zip(one[0].names, one[0].units, strict=True)]
            for task, metric, name, unit in targets[:4]:
                value = error_text(float(values[f"val/{metric}/{name}"])) + (f" {unit}" if unit and metric in task.in_units else "")
                parts.append(f"val {metric_title(metric)} {shown(name)} {value}")
        seconds = time.perf_counter() - self.start
        parts.append(f"{seconds:.1f} s" if seconds >= 1 else f"{1e3 * seconds:.0f} ms")
        trainer.print("  ".join(parts), flush=True)


class EpochBar(RichProgressBar):
    """Shows Lightning's progress bar with epochs counted from 1, drawn by its thread ten times a second."""

    def __init__(self) -> None:
        super().__init__(refresh_rate=_DRAWN)
        self._next = 0.0

    def on_train_epoch_start(self, trainer: Trainer, pl_module: Any) -> None:
        """Begin the epoch's bar. From then on Rich draws none while training waits, as it would twice an epoch."""
        super().on_train_epoch_start(trainer, pl_module)
        if self.progress is not None:
            self.progress.refresh = self.progress.soft_refresh  # type: ignore[method-assign]

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Move the bar where it is drawn anew."""
        now = time.perf_counter()
        if now >= self._next or trainer.is_last_batch:
            self._next = now + 1 / _DRAWN
            super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)

    def on_validation_epoch_end(self, trainer: Trainer, pl_module: Any) -> None:
        """Remove the bar of the validation, of which Lightning keeps one for each epoch."""
        super().on_validation_epoch_end(trainer, pl_module)
        if self.progress is not None and self.val_progress_bar_id is not None:
            self.progress.remove_task(self.val_progress_bar_id)
            self.val_progress_bar_id = None

    @property
    def test_description(self) -> str:
        return "Measuring"  # all parts, one after the other, and not the test part alone

    def _get_train_description(self, current_epoch: int) -> str:
        last = self.trainer.max_epochs
        return f"Epoch {current_epoch + 1}" + (f"/{last}" if last is not None and last >= 0 else "")
