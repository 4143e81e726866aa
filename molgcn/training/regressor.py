"""The LightningModule: loss, step, metrics and what a checkpoint needs to be used by itself."""

from __future__ import annotations

import math
from typing import Any

import torch
from lightning import LightningModule
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor
from torch.nn.utils import clip_grad_norm_

from molgcn.config import Config
from molgcn.data.batch import GraphBatch
from molgcn.nn import GCN
from molgcn.training.ema import ExponentialMovingAverage
from molgcn.training.losses import masked_loss
from molgcn.training.metrics import TargetMetrics
from molgcn.training.optim import build_optimizer, build_scheduler, step_plateau, step_scheduler


class MoleculeRegressor(LightningModule):
    """Predicts T targets of a molecule with a :class:`molgcn.nn.GCN`.

    The model works on standardised targets; the buffers `target_mean` and `target_std` [T] invert them in every reported number.

    Args:
        config: the run's configuration.
        in_channels: features an atom.
        target_names: T names.
        target_units: T units.
        target_mean: [T], mean over the training set's known values.
        target_std: [T], their standard deviation.
        features: the featuriser's name, or None.

    Shapes:
        - **input:** a batch of B molecules
        - **output:** [B, T] in the targets' units
    """

    target_mean: Tensor
    target_std: Tensor

    def __init__(
        self,
        config: Config,
        in_channels: int,
        target_names: tuple[str, ...],
        target_units: tuple[str, ...],
        target_mean: Tensor,
        target_std: Tensor,
        features: str | None,
    ) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.config = config
        self.architecture: dict[str, Any] = {
            "in_channels": in_channels,
            "target_names": list(target_names),
            "target_units": list(target_units),
        }
        self.features = features
        options = {key: value for key, value in vars(config.model).items() if key != "name"}
        self.model = GCN(
            in_channels=in_channels,
            out_channels=len(target_names),
            backend=config.backend.name,
            strategy=config.backend.strategy,
            **options,
        )
        decay = config.training.ema_decay
        self.ema = None if decay is None else ExponentialMovingAverage(self.model, decay)
        self.register_buffer("target_mean", target_mean.float())
        self.register_buffer("target_std", target_std.float())
        self.loss = masked_loss(config.training)
        self.validation_metrics = TargetMetrics(target_names)
        self.test_metrics = TargetMetrics(target_names)
        self.test_results: dict[str, float] = {}
        self.train_loss = LossSum()
        self.validation_loss = LossSum()

    @property
    def target_names(self) -> list[str]:
        """The targets."""
        return self.architecture["target_names"]

    @property
    def target_units(self) -> list[str]:
        """Their units."""
        return self.architecture["target_units"]

    @property
    def averaged(self) -> GCN:
        """The weights that validation and prediction use: the moving average where there is one."""
        return self.model if self.ema is None else self.ema.module  # type: ignore[return-value]

    def forward(self, batch: Any) -> Tensor:
        """Predictions [B, T] in the targets' units."""
        return self.averaged(batch) * self.target_std + self.target_mean

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """Forward, backward and, once `training.accumulate_batches` batches are in, one optimiser step."""
        total, count = self.loss(self.model(batch), self._standardised(batch))
        self.manual_backward(total / (count.clamp(min=1) * self.config.training.accumulate_batches))
        self.train_loss.update(total, count)
        if self.steps_after(batch_idx):
            self._step()

    def steps_after(self, batch_idx: int) -> bool:
        """Whether the optimiser steps after this batch: the last one of an accumulation or of the epoch."""
        return (batch_idx + 1) % self.config.training.accumulate_batches == 0 or self.trainer.is_last_batch

    def _step(self) -> None:
        optimizer: Any = self.optimizers()
        clip = self.config.training.gradient_clip_norm
        if clip is not None:
            clip_grad_norm_(self.model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        step_scheduler(self.lr_schedulers())  # type: ignore[arg-type]
        if self.ema is not None:
            self.ema.update(self.model)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Adds a batch to the validation loss and metrics."""
        prediction, target = self.averaged(batch), self._standardised(batch)
        self.validation_loss.update(*self.loss(prediction, target))
        self.validation_metrics.update(prediction, target)

    def on_validation_epoch_end(self) -> None:
        """Publishes `val/loss` and the metrics, and shows the loss to a plateau schedule."""
        loss = self.validation_loss.compute_and_reset(self.trainer.strategy)
        metrics = {"val/loss": loss} | {f"val/{key}": value for key, value in self.validation_metrics.compute(self.target_std).items()}
        self.validation_metrics.reset()
        self.log_dict(metrics, logger=False, sync_dist=True)  # every rank has the same values: they were reduced above
        if self.trainer.sanity_checking or self.trainer.state.fn != TrainerFn.FITTING:
            return
        self.log_now(metrics)
        step_plateau(self.lr_schedulers(), loss)  # type: ignore[arg-type]

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Adds a batch to the test metrics."""
        self.test_metrics.update(self.averaged(batch), self._standardised(batch))

    def on_test_epoch_end(self) -> None:
        """Keeps the metrics in `test_results`: "<mae|rmse|r2>/<target>" in the targets' units."""
        self.test_results = self.test_metrics.compute(self.target_std)
        self.test_metrics.reset()

    def log_now(self, metrics: dict[str, float]) -> None:
        """Sends values to every logger at the current optimiser step."""
        for logger in self.trainer.loggers:
            logger.log_metrics({"epoch": self.current_epoch, **metrics}, step=self.global_step)

    def configure_optimizers(self) -> Any:
        """The optimiser and schedule that the configuration names."""
        optimizer = build_optimizer(self.model.parameters(), self.config.optimizer)
        batches = self.trainer.num_training_batches
        if batches == math.inf:
            self.trainer.fit_loop.setup_data()
            batches = self.trainer.num_training_batches
        steps_per_epoch = max(math.ceil(batches / self.config.training.accumulate_batches), 1)
        limits = [steps_per_epoch * epochs for epochs in [self.trainer.max_epochs] if epochs is not None and epochs > 0]
        limits += [self.trainer.max_steps] if self.trainer.max_steps > 0 else []
        scheduler = build_scheduler(
            optimizer, self.config.scheduler, self.config.optimizer.lr, steps_per_epoch, min(limits, default=steps_per_epoch)
        )
        return [optimizer], [scheduler]

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Adds what is needed to use the checkpoint by itself, and the running sums: plain values only."""
        checkpoint["molgcn"] = {"config": self.config.to_dict(), "features": self.features, **self.architecture}
        checkpoint["train_loss"] = self.train_loss.state()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Takes the running sums back."""
        self.train_loss.load(checkpoint.get("train_loss"))

    def _standardised(self, batch: Any) -> Tensor:
        targets = batch.targets if isinstance(batch, GraphBatch) else batch.y.reshape(batch.num_graphs, -1)
        return (targets - self.target_mean) / self.target_std


class LossSum:
    """A loss summed on the device and read only when it is asked for."""

    def __init__(self) -> None:
        self.total: Tensor | float = 0.0
        self.count: Tensor | float = 0.0

    def update(self, total: Tensor, count: Tensor) -> None:
        """Adds a batch's sum and number of terms."""
        self.total = self.total + total.detach().double()
        self.count = self.count + count

    def compute_and_reset(self, strategy: Any) -> float:
        """The mean over everything added on every rank since the last call; NaN when there was nothing."""
        total, count = (torch.as_tensor(value, dtype=torch.double, device=strategy.root_device) for value in (self.total, self.count))
        total, count = (strategy.reduce(value, reduce_op="sum") for value in (total, count))
        self.total, self.count = 0.0, 0.0
        return float(total / count)

    def state(self) -> tuple[float, float]:
        """Both sums as numbers."""
        return float(self.total), float(self.count)

    def load(self, state: tuple[float, float] | None) -> None:
        """Continues from :meth:`state`."""
        self.total, self.count = state or (0.0, 0.0)
