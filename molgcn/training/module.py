"""The LightningModule: loss, step, metrics and what a checkpoint needs to be used by itself."""

from __future__ import annotations

import inspect
import logging
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from lightning import Callback, LightningModule
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from molgcn.config.run import Config
from molgcn.data.molecule_set import MoleculeSet
from molgcn.errors import counted
from molgcn.training.checkpoint_format import describe
from molgcn.training.clipped_adam import ClippedAdam
from molgcn.training.data_parallel.mean_gradients import MeanGradients
from molgcn.training.freezing import enter_stage, hold_statistics, learning_parameters, stage_at
from molgcn.training.level_labels import labels_of_batch
from molgcn.training.monitor import Monitor
from molgcn.training.optim import build_optimizer, build_scheduler, step_plateau, step_scheduler, total_steps
from molgcn.training.predictor import MoleculePredictor
from molgcn.training.ranks import of_all_ranks, of_this_rank, rows_of_all_ranks
from molgcn.training.steps.chosen import ChosenSteps
from molgcn.training.steps.watch import WITHIN_STEP, overridden
from molgcn.training.training_loss import TrainingLoss, check_loss, mean_of_terms

log = logging.getLogger(__name__)


class MoleculeModule(MoleculePredictor, LightningModule):
    """Trains and measures a :class:`MoleculePredictor`, whose arguments it takes."""

    rates_on_device = True  # all optimisers of a run take learning rates there
    # Lightning keeps both; to ask a parameter at each step takes longer.
    device, dtype = LightningModule.device, LightningModule.dtype  # type: ignore[assignment]

    def __init__(self, config: Config, *args: Any, **kwargs: Any) -> None:
        super().__init__(config, *args, **kwargs)
        self.automatic_optimization = False
        self.frozen = stage_at(config.training, 0)
        enter_stage(self.model, self.frozen, self.frozen)
        self.loss = self.task.loss(config.training, fused=self.model.backend.name == "fused")
        self.test_results: dict[str, float] = {}
        self.monitor = Monitor.of(config.training.monitor, self.task)
        self.train_loss = TrainingLoss(fused=self.model.backend.name == "fused")
        self.evaluated: list[tuple[Tensor, Tensor]] = []
        self.steps = ChosenSteps()
        self._mean_gradients = MeanGradients()

    def fit_descriptors(self, descriptors: np.ndarray | None) -> None:
        """Fit the scale of descriptors to those of the training part, float32 [M, K], or None where there are none."""
        for network in (self.model, self.averaged):
            if network.descriptors is not None and descriptors is not None:
                network.descriptors.fit(descriptors)

    def fit_own_features(self, molecules: MoleculeSet) -> None:
        """Fit the scales of the features of atoms and bonds that come from a file to the molecules of the training part."""
        for network in (self.model, self.averaged):
            for encoder in (network, *network.encoders):
                if encoder.atom_scale is not None:
                    encoder.atom_scale.fit(molecules.node_features()[:, -len(molecules.atom_feature_names) :])
                if encoder.bond_scale is not None and molecules.num_edges:
                    encoder.bond_scale.fit(molecules.edge_features()[:, -len(molecules.bond_feature_names) :])

    def train(self, mode: bool = True) -> Self:
        """Set training or evaluation mode; the batch norms of frozen layers stay in evaluation mode."""
        super().train(mode)
        hold_statistics(self.model, self.frozen)
        return self

    def _enter_stage(self) -> None:
        frozen = stage_at(self.config.training, self.current_epoch)
        if frozen == self.frozen:
            return
        enter_stage(self.model, self.frozen, frozen)
        self.frozen, self.steps = frozen, ChosenSteps()
        if self.trainer.is_global_zero:
            learns = f"all but the first {counted(frozen.freeze, 'layer')} learn" if isinstance(frozen.freeze, int) else "all weights learn"
            if frozen.freeze == "encoder":
                learns = "the whole head learns"
            log.info("From epoch %d on %s", self.current_epoch + 1, learns)

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute, without a search among the submodules for a name that Lightning sets twenty times per step."""
        if name == "_current_fx_name":
            self.__dict__[name] = value
        else:
            super().__setattr__(name, value)

    def _on_before_batch_transfer(self, batch: Any, dataloader_idx: int = 0) -> Any:
        """Return the batch as it is: Lightning's search for three hooks at every batch takes longer than the replay of a step."""
        return batch

    def _apply_batch_transfer_handler(self, batch: Any, device: torch.device | None = None, dataloader_idx: int = 0) -> Any:
        return self.ready(batch, device)

    def on_train_start(self) -> None:
        """Forget CUDA graphs and all else that belongs to one fit; the first batch makes them anew."""
        self.steps, self._mean_gradients = ChosenSteps(), MeanGradients(self.accumulates, self.trainer.world_size)
        self._enter_stage()

    def on_fit_end(self) -> None:
        """Forget what belongs to the fit."""
        self.steps, self._mean_gradients = ChosenSteps(), MeanGradients()

    def on_train_epoch_start(self) -> None:
        """Choose anew how steps are taken where another stage begins or layers were replaced since the last epoch."""
        self._enter_stage()
        self.steps.look_for_replaced_layers(self.model)

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes that can be copied and saved."""
        return super().__getstate__() | {"_mean_gradients": MeanGradients()}

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """Compute a batch's gradients and, after `training.accumulate_batches` batches, take one optimiser step."""
        last = self.steps_after(batch_idx)
        self.train_loss.rates.append(self.trainer.optimizers[0].param_groups[0]["lr"])
        self.steps.take(self, batch, last)
        if last:
            step_scheduler(self.lr_schedulers())  # type: ignore[arg-type]

    def steps_after(self, batch_idx: int) -> bool:
        """Return whether the optimiser steps after this batch: the last one of an accumulation or of the epoch."""
        return (batch_idx + 1) % self.config.training.accumulate_batches == 0 or self.trainer.is_last_batch

    def static_form(self, batch: Any) -> Any:
        """Return the batch; on a GPU its slot in its full, padded shape, so that plain and captured steps compute the same sums."""
        padded = getattr(batch, "padded", None)
        return padded if padded is not None and self.device.type == "cuda" and self.model.backend.name != "pyg" else batch

    @property
    def accumulates(self) -> bool:
        """Whether an optimiser step may take the gradients of several batches."""
        return self.config.training.accumulate_batches > 1

    def for_loss(self, targets: Tensor) -> tuple[Tensor, ...]:
        """Turn labels [B, L] and the task's statistics into what the loss takes; see :meth:`molgcn.tasks.base.Task.for_loss`."""
        return self.task.for_loss(targets, self.dtype, *self.statistics)  # type: ignore[arg-type]

    def relied_on(self) -> tuple[Sequence[Tensor], Any]:
        """Return the tensors that a training step reads beside the network's, and the options that it takes as constant."""
        return self.statistics, self.loss.options

    def add_gradients(self, batch: Any) -> None:
        """Run forward, loss and backward, and add the gradients of a batch to those of the parameters."""
        loss, sums = self.loss.of_model(self.model, batch, *self.for_loss(labels_of_batch(batch, self.levels)))
        self.manual_backward(loss, gradient=self._mean_gradients.weight(loss, sums))
        self.train_loss.update(sums)

    def listener(self) -> str | None:
        """Return the name of a callback's or subclass's method that must be called within each step; None where there is none."""
        callbacks: list[Callback] = self.trainer.callbacks  # type: ignore[attr-defined]
        own = overridden(self, MoleculeModule, ("add_gradients", "update_weights", "manual_backward", "backward", *WITHIN_STEP))
        return own or next(filter(None, (overridden(callback, Callback, WITHIN_STEP) for callback in callbacks)), None)

    def update_weights(self, optimizer: Any) -> None:
        """Clip the gradients, then take one step of the optimiser and of the moving average."""
        self._mean_gradients.divide(self.model)
        clip = self.config.training.gradient_clip_norm
        if clip is not None and not isinstance(optimizer, ClippedAdam):
            clip_grad_norm_(self.model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        if self.ema is not None:
            self.ema.update(self.model)

    def on_validation_epoch_start(self) -> None:
        """Drop the predictions of an evaluation that was interrupted, before a test begins."""
        self.evaluated = []

    on_test_epoch_start = on_validation_epoch_start

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Keep a batch's predictions for the validation loss and metrics; where training steps are captured, this is a CUDA graph too."""
        self._evaluate(batch, self.steps.forward(self.averaged))

    def on_validation_epoch_end(self) -> None:
        """Log `val/loss`, the metrics and the monitored value, and give the latter to a plateau schedule."""
        prediction, target = self._evaluated()
        value = mean_of_terms(self.loss(prediction, *self.for_loss(target))[1], self.trainer.strategy)
        metrics = {"val/loss": value} | {
            f"val/{key}": error for key, error in self._errors(prediction, target, self.monitor.measured).items()
        }
        monitored = metrics[self.monitor.key] = self.monitor.value(metrics)
        if self.trainer.state.fn != TrainerFn.FITTING:
            self.log_dict(metrics, logger=False, sync_dist=True)  # every rank has the same values: they were reduced above
            return
        # callbacks read these; `self.log` would take as long as a step or two
        self.trainer.callback_metrics.update({key: torch.tensor(value) for key, value in metrics.items()})
        if self.trainer.sanity_checking:
            return
        check_loss(self.trainer, self)
        self.log_now(metrics)
        step_plateau(self.lr_schedulers(), monitored)  # type: ignore[arg-type]

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Keep a batch's predictions for the test metrics."""
        self._evaluate(batch, self.averaged)

    def on_test_epoch_end(self) -> None:
        """Keep the metrics, by "<metric>/<target>", in `test_results`."""
        self.test_results = self._errors(*self._evaluated(), self.task.all_metrics)

    def log_now(self, metrics: dict[str, float]) -> None:
        """Send values to every logger at the current optimiser step.

        Args:
            metrics: the values by their names, such as "val/loss".
        """
        for logger in self.trainer.loggers:
            logger.log_metrics({"epoch": self.current_epoch, **metrics}, step=self.global_step)

    def configure_optimizers(self) -> Any:
        """Return the optimiser and the schedule that the configuration names.

        Raises:
            UserError: If the schedule ends with the training, and nothing says when that is.
        """
        clip = self.config.training.gradient_clip_norm
        optimizer = build_optimizer(learning_parameters(self.model, self.config), self.config.optimizer, clip)
        batches = self.trainer.num_training_batches
        if batches == math.inf:
            self.trainer.fit_loop.setup_data()
            batches = self.trainer.num_training_batches
        steps_per_epoch = max(math.ceil(batches / self.config.training.accumulate_batches), 1)
        total = total_steps(self.config.scheduler, steps_per_epoch, self.trainer.max_epochs, self.trainer.max_steps)
        rate, mode = self.config.optimizer.lr, self.monitor.mode
        scheduler = build_scheduler(optimizer, self.config.scheduler, rate, steps_per_epoch, total, mode)
        return [optimizer], [scheduler]

    @cached_property
    def _description(self) -> dict[str, Any]:
        """What every checkpoint of the run says about itself."""
        return describe(self.config, self.features, self.architecture, self.trained_on)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what is needed to use the checkpoint by itself, and the running sums of the loss, as plain values."""
        checkpoint["molgcn"] = self._description
        checkpoint["train_loss"] = of_all_ranks(self.trainer, self.train_loss.state())

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the running sums of the loss."""
        sums = checkpoint["train_loss"]
        if len(sums) != self.trainer.world_size:  # the first process takes all
            sums = [tuple(map(sum, zip(*sums, strict=True)))]
        self.train_loss.load(of_this_rank(self.trainer, sums))

    def _evaluate(self, batch: Any, model: Callable[[Any], Tensor]) -> None:
        form = self.static_form(batch)
        if self.levels:  # the padding's rows have no labels
            self.evaluated.append((model(form), labels_of_batch(form, self.levels)))
        else:
            self.evaluated.append((model(form)[: batch.num_graphs], labels_of_batch(batch, self.levels)))

    def _evaluated(self) -> tuple[Tensor, Tensor]:
        """Return all predictions and targets of an evaluation: metrics of single batches would wait for the device at each."""
        predictions, targets = zip(*self.evaluated, strict=True)
        self.evaluated = []
        return torch.cat(predictions), torch.cat(targets)

    def _errors(self, prediction: Tensor, target: Tensor, wanted: Sequence[str]) -> dict[str, float]:
        """Compute the task's metrics on the host, after one transfer, from the outputs and targets of all processes."""
        rows = rows_of_all_ranks(self.trainer, torch.cat([self.decode(prediction), target.double()], dim=1)).cpu()
        predictions, labels = rows.tensor_split([self.task.num_predictions], dim=1)
        return self.task.measure(predictions, labels, wanted)


# Lightning inspects these signatures at every step, which takes as long as replaying one.
for _step in (MoleculeModule.training_step, MoleculeModule.validation_step, MoleculeModule.test_step):
    _step.__signature__ = inspect.signature(_step)  # type: ignore[attr-defined]
