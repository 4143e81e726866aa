"""Lightning's loop over the validation batches of a fit, without what takes it longer than a validation of a small set."""

from __future__ import annotations

import time
from itertools import islice
from typing import Any

import torch
from lightning.pytorch.loops.evaluation_loop import _EvaluationLoop
from lightning.pytorch.utilities.exceptions import SIGTERMException

from molgcn.training.listeners import Listeners, own_listeners

_BATCH = ("on_validation_batch_start", "on_validation_batch_end")
_HOOKS = ("on_validation_start", "on_validation_epoch_start", *_BATCH, "on_validation_epoch_end", "on_validation_end")
_OWN = (*_HOOKS, "validation_step", "transfer_batch_to_device", "on_before_batch_transfer")


class ValidationLoop(_EvaluationLoop):
    """Validates within a fit as Lightning does, and calls only those callbacks that listen.

    Lightning calls each hook of every callback, asks for signatures and collects what was logged: 1.1 ms for a validation whose network
    takes 0.3 ms. Where somebody else's callback or a subclass listens, who may log, all of that is done.
    """

    def run(self) -> list[Any]:
        """Validate."""
        plain = self.restarting or self.trainer.sanity_checking
        listeners = None if plain else own_listeners(self.trainer, _HOOKS, _OWN)
        if listeners is None:
            return super().run()
        self.setup_data()
        if not self.skip:
            self._validate(listeners)
        return []

    @torch.no_grad()
    def _validate(self, listeners: Listeners) -> None:
        trainer, progress = self.trainer, self.batch_progress
        module, strategy = trainer.lightning_module, trainer.strategy

        def tell(hook: str, *values: Any) -> None:
            for listener in listeners[hook]:
                listener(trainer, module, *values)

        progress.reset_on_run()
        self._on_evaluation_model_eval()
        tell("on_validation_start")
        tell("on_validation_epoch_start")
        module.on_validation_epoch_start()
        (loader,), (batches,) = self._combined_loader.flattened, self.max_batches
        for number, batch in enumerate(islice(loader, int(batches))):
            progress.is_last_batch = number + 1 == batches
            batch = strategy.batch_to_device(trainer.precision_plugin.convert_input(batch), dataloader_idx=0)
            progress.increment_ready()
            tell("on_validation_batch_start", batch, number)
            progress.increment_started()
            strategy.validation_step(batch, number)
            progress.increment_processed()
            tell("on_validation_batch_end", None, batch, number)
            progress.increment_completed()
            if trainer.received_sigterm and not progress.is_last_batch:
                raise SIGTERMException
        tell("on_validation_epoch_end")
        module.on_validation_epoch_end()
        tell("on_validation_end")
        self._on_evaluation_model_train()
        self._has_run, trainer._last_val_time = True, time.monotonic()
