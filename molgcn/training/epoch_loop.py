"""Lightning's loop over the batches of an epoch, without what takes it as long as replaying a step."""

from __future__ import annotations

from typing import Any

from lightning import Trainer
from lightning.pytorch.loops.fetchers import _DataFetcher, _DataLoaderIterDataFetcher
from lightning.pytorch.loops.training_epoch_loop import _TrainingEpochLoop
from lightning.pytorch.trainer.states import RunningStage, TrainerFn

from molgcn.training.listeners import Listeners, own_listeners
from molgcn.training.validation_loop import ValidationLoop

_START, _END = "on_train_batch_start", "on_train_batch_end"
_OWN = (_START, _END, "training_step", "transfer_batch_to_device", "on_before_batch_transfer")


class EpochLoop(_TrainingEpochLoop):
    """Runs an epoch as Lightning does, and calls at a batch only those callbacks that listen.

    Lightning calls every hook of every callback, asks for the signature of the step and collects what was logged within it, which for a
    small network takes longer than the step. Where somebody else's callback or a subclass listens, who may log, all of that is done.
    """

    _listeners: Listeners | None = None
    _validates_last = False  # whether no validation is due before an epoch's last batch

    @classmethod
    def install(cls, trainer: Trainer) -> None:
        """Replace the loop over batches of a trainer that has not run."""
        before = trainer.fit_loop.epoch_loop
        trainer.fit_loop.epoch_loop = loop = cls(trainer, min_steps=before.min_steps, max_steps=before.max_steps)
        loop.val_loop = ValidationLoop(trainer, TrainerFn.FITTING, RunningStage.VALIDATING, verbose=False, inference_mode=False)

    def run(self, data_fetcher: _DataFetcher) -> None:
        """Run an epoch."""
        takes_iterator = isinstance(data_fetcher, _DataLoaderIterDataFetcher)
        self._listeners = None if takes_iterator else own_listeners(self.trainer, (_START, _END), _OWN)
        timed = getattr(self.trainer, "_val_check_time_interval", None) is not None
        self._validates_last = not timed and self.trainer.val_check_batch == self.trainer.num_training_batches
        super().run(data_fetcher)

    def advance(self, data_fetcher: Any) -> None:
        """Train on one batch."""
        if self._listeners is None or self.restarting:
            super().advance(data_fetcher)
            return
        trainer, progress = self.trainer, self.batch_progress
        module, strategy = trainer.lightning_module, trainer.strategy
        if self.val_loop.restarting:
            self.val_loop.restarting = False
        (reading,) = data_fetcher.combined_loader._iterator.iterators  # what the fetcher reads through three more iterators
        batch, batch_idx = module.ready(next(reading), strategy.root_device), self.batch_idx + 1
        data_fetcher.fetched += 1
        progress.is_last_batch = data_fetcher.done = data_fetcher.fetched >= data_fetcher.length
        progress.increment_ready()
        for listener in self._listeners[_START]:
            listener(trainer, module, batch, batch_idx)
        progress.increment_started()
        self.manual_optimization.on_run_start()
        strategy.training_step(batch, batch_idx)
        self.manual_optimization.on_run_end()
        progress.increment_processed()
        for listener in self._listeners[_END]:
            listener(trainer, module, {}, batch, batch_idx)
        progress.increment_completed()

    def on_advance_end(self, data_fetcher: _DataFetcher) -> None:
        """Validate where it is due."""
        ends = self.trainer.should_stop or self.trainer.received_sigterm or self._skip_next_val
        within = self._validates_last and not self.batch_progress.is_last_batch
        if self._listeners is None or ends or not (within or not self._should_check_val_fx(data_fetcher)):
            super().on_advance_end(data_fetcher)
        else:
            self._batches_that_stepped += 1
