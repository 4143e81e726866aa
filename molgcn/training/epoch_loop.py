"""Lightning's loop over the batches of an epoch, without what takes it as long as replaying a step."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from lightning import Callback, Trainer
from lightning.pytorch.callbacks import Timer
from lightning.pytorch.loops.fetchers import _DataFetcher, _DataLoaderIterDataFetcher
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop
from lightning.pytorch.profilers import PassThroughProfiler

from molgcn.training.module import MoleculeModule
from molgcn.training.steps.watch import overridden

_AROUND_STEP = ("training_step", "on_train_batch_start", "on_train_batch_end", "transfer_batch_to_device", "on_before_batch_transfer")
_NOTHING = nullcontext()


class NoProfiler(PassThroughProfiler):
    """Profiles nothing, without the generator that Lightning's own makes for each hook."""

    def profile(self, action_name: str) -> AbstractContextManager[None]:  # type: ignore[override]
        return _NOTHING


class _Listeners(NamedTuple):
    """The methods of callbacks to be called before and after each batch."""

    start: list[Any]
    end: list[Any]


class EpochLoop(_TrainingEpochLoop):
    """Runs an epoch as Lightning does, and calls at a batch only those callbacks that listen.

    Lightning calls every hook of every callback, asks for the signature of the step and collects what was logged within it, which for a
    small network takes longer than the step. Where somebody else's callback or a subclass listens, who may log, all of that is done.
    """

    _listeners: _Listeners | None = None

    @classmethod
    def install(cls, trainer: Trainer) -> None:
        """Replace the loop over batches of a trainer that has not run."""
        before = trainer.fit_loop.epoch_loop
        trainer.fit_loop.epoch_loop = cls(trainer, min_steps=before.min_steps, max_steps=before.max_steps)

    def run(self, data_fetcher: _DataFetcher) -> None:
        """Run an epoch."""
        self._listeners = None if isinstance(data_fetcher, _DataLoaderIterDataFetcher) else _own_listeners(self.trainer)
        super().run(data_fetcher)

    def advance(self, data_fetcher: _DataFetcher) -> None:
        """Train on one batch."""
        if self._listeners is None or self.restarting:
            super().advance(data_fetcher)
            return
        trainer, progress = self.trainer, self.batch_progress
        module, strategy = trainer.lightning_module, trainer.strategy
        if self.val_loop.restarting:
            self.val_loop.restarting = False
        batch, _, _ = next(data_fetcher)
        batch_idx = self.batch_idx + 1
        progress.is_last_batch = data_fetcher.done
        batch = strategy.batch_to_device(trainer.precision_plugin.convert_input(batch), dataloader_idx=0)
        progress.increment_ready()
        for listener in self._listeners.start:
            listener(trainer, module, batch, batch_idx)
        progress.increment_started()
        self.manual_optimization.on_run_start()
        strategy.training_step(batch, batch_idx)
        self.manual_optimization.on_run_end()
        progress.increment_processed()
        for listener in self._listeners.end:
            listener(trainer, module, {}, batch, batch_idx)
        progress.increment_completed()

    def on_advance_end(self, data_fetcher: _DataFetcher) -> None:
        """Validate where it is due."""
        ends = self.trainer.should_stop or self.trainer.received_sigterm
        if self._listeners is None or ends or self._skip_next_val or self._should_check_val_fx(data_fetcher):
            super().on_advance_end(data_fetcher)
        else:
            self._batches_that_stepped += 1


def _own_listeners(trainer: Trainer) -> _Listeners | None:
    """Return the methods that listen to batches; None where one is not of this program, or a profiler listens to all hooks."""
    callbacks: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
    profiled = not isinstance(trainer.profiler, NoProfiler)  # type: ignore[attr-defined]
    if profiled or overridden(trainer.lightning_module, MoleculeModule, _AROUND_STEP):
        return None
    found = _Listeners([], [])
    for name, listeners in (("on_train_batch_start", found.start), ("on_train_batch_end", found.end)):
        for callback in callbacks:
            if overridden(callback, Callback, (name,)):
                if not (type(callback).__module__.startswith("molgcn.") or isinstance(callback, Timer)):
                    return None
                listeners.append(getattr(callback, name))
    return found
