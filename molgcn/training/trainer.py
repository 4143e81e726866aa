"""Build Lightning's Trainer from `trainer.*`; options that have another name in this program are refused with that name."""

from __future__ import annotations

import difflib
import inspect
import logging
import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, Trainer
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import DDPStrategy
from lightning.pytorch.strategies.launchers import _MultiProcessingLauncher

from molgcn.config.run import Config
from molgcn.config.training import TrainingConfig
from molgcn.errors import UserError, require
from molgcn.training.checkpoint_io import AtomicCheckpointIO
from molgcn.training.data_parallel.strategy import DataParallel, end_on_signals
from molgcn.training.epoch_loop import EpochLoop
from molgcn.training.launched import launched
from molgcn.training.listeners import NoProfiler

log = logging.getLogger(__name__)

_OURS = {
    "gradient_clip_val": "training.gradient_clip_norm",
    "gradient_clip_algorithm": "training.gradient_clip_norm",
    "accumulate_grad_batches": "training.accumulate_batches",
    "logger": "logger=csv|wandb|tensorboard",
    "callbacks": "callbacks.early_stopping_patience and its neighbours",
    "default_root_dir": "hydra.run.dir",
    "plugins": "trainer.precision or trainer.strategy",
    "enable_checkpointing": "training.checkpoint_seconds",
    "limit_test_batches": "dataset.subset or dataset.split_fractions",
    "use_distributed_sampler": "loader=packed|pyg, whose loaders share the molecules among the devices",
    "reload_dataloaders_every_n_epochs": "seed, which with the epoch decides each permutation",
}
_ABOVE_ZERO = {
    "limit_train_batches": "trainer.max_epochs=0 tests the network as it was drawn.",
    "check_val_every_n_epoch": "trainer.limit_val_batches=0 leaves validation out.",
    "val_check_interval": "trainer.limit_val_batches=0 leaves validation out.",
}
_STARTED_ON_NODES = ("MASTER_ADDR", "SLURM_JOB_ID", "LSB_JOBID")  # variables that torchrun, SLURM and LSF set
_WHOLE = ("max_epochs", "min_epochs", "max_steps", "min_steps")
DOUBLE = ("64-true", "64", 64)
_PRECISIONS = ("32-true", "32", 32, "bf16-mixed", *DOUBLE)


def validates(config: Config, has_part: bool) -> bool:
    """Return whether a run on a split with or without a validation part validates."""
    return has_part and bool(config.trainer.get("limit_val_batches", 1) != 0)


def check_validates(config: Config, has_part: bool = True) -> None:
    """Check that no option needs validations where there are none; a data set without a validation part is logged."""
    if validates(config, has_part):
        return
    why = "trainer.limit_val_batches=0 leaves validation out" if has_part else "the split has no validation part"
    for key, waits in (
        ("scheduler=plateau", config.scheduler.name == "plateau"),
        ("callbacks.early_stopping_patience", config.callbacks.early_stopping_patience not in (None, "auto")),
        (f"training.monitor={config.training.monitor}", config.training.monitor != TrainingConfig.monitor),
    ):
        if waits:
            raise UserError(f"{key} looks at validations, but {why}. Leave out one.")
    if not has_part:
        log.info("There is no validation part: the last weights are the model")


def check_trainer(options: Mapping[str, Any]) -> None:
    """Raise UserError for an option of the section `trainer` that this program or this machine refuses; Lightning refuses others later."""
    options = _given(options)
    known = [name for name in inspect.signature(Trainer.__init__).parameters if name != "self" and name not in _OURS]
    for name in options:
        if name in _OURS:
            raise UserError(f"trainer.{name} is not an option of this program. Use {_OURS[name]} instead.")
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            raise UserError(
                f"trainer.{name} is not an option of Lightning's Trainer. {f'Did you mean trainer.{close[0]}?' if close else ''}"
            )
    for name, advice in _ABOVE_ZERO.items():
        value = options.get(name, 1)
        if isinstance(value, int | float) and value <= 0:
            raise UserError(f"trainer.{name}={value:g} is not valid: expected more than 0. {advice}")
    for name in _WHOLE:
        require(isinstance(options.get(name), int | None), f"trainer.{name}", options.get(name), "a whole number")
    limit = options.get("max_time")
    timed = isinstance(limit, str | timedelta | Mapping | None)
    require(timed, "trainer.max_time", limit, "days:hours:minutes:seconds, as in '00:01:30:00'")
    precision = options.get("precision") or "32-true"
    if precision not in _PRECISIONS:
        raise UserError(
            f"trainer.precision={precision} is not supported. Use 32-true, bf16-mixed (float16 would need loss scaling) or 64-true."
        )
    accelerator, devices = options.get("accelerator"), options.get("devices")
    if accelerator in ("cuda", "gpu") and not torch.cuda.is_available():
        raise UserError(f"trainer.accelerator={accelerator}, but torch sees no CUDA GPU. Use trainer.accelerator=auto or cpu.")
    require(devices not in (0, "0"), "trainer.devices", devices, "at least 1, or -1 for all that there are")
    if (options.get("num_nodes") or 1) != 1 and not any(name in os.environ for name in _STARTED_ON_NODES):
        raise UserError(
            f"trainer.num_nodes={options['num_nodes']}, but nothing started this process as one of several, so that it would wait for the "
            "others forever. Start it with srun or torchrun on each node, or leave trainer.num_nodes out."
        )


def build_trainer(options: dict[str, Any], callbacks: list[Callback], loggers: list[Logger], folder: Path) -> Trainer:
    """Return a Trainer that writes to `folder`, with `options` from the section `trainer`, which :func:`check_trainer` checks.

    Where `options` do not name `devices`, it has one: Lightning would take all that there are.
    """
    check_trainer(options)
    options = _given(options)
    if options.get("deterministic"):  # PyTorch would fill every new tensor; this program reads none before it is written
        torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    one_norm = bool(options.pop("sync_batchnorm", False))
    options = {"devices": 1} | options | {"profiler": options.get("profiler") or NoProfiler()}
    trainer = _trainer(options, callbacks, loggers, folder)
    if (found := launched()) is not None and found[1] != (wanted := trainer.num_devices * trainer.num_nodes):
        raise UserError(
            f"{found[2]} has started {found[1]} processes of this run, and trainer.devices={trainer.num_devices} on "
            f"trainer.num_nodes={trainer.num_nodes} would be {wanted}. Start one for each device, with trainer.devices of one machine."
        )
    if isinstance(trainer.strategy.launcher, _MultiProcessingLauncher):  # Lightning's own choice for several devices in a notebook
        raise UserError(
            f"trainer.strategy={options.get('strategy') or 'auto'} would train in processes that this one starts for the fit alone, and "
            "what they have learned ends with them. Use trainer.strategy=ddp, in a program of its own, or trainer.devices=1."
        )
    if isinstance(trainer.strategy, DDPStrategy):  # Lightning's choice for several devices
        trainer = end_on_signals(_trainer(options | {"strategy": DataParallel(folder, one_norm)}, callbacks, loggers, folder))
    elif trainer.world_size > 1:
        raise UserError(
            f"trainer.strategy={options['strategy']} does not train this program's networks, which fit on each device. Use "
            "trainer.strategy=ddp, or leave it out."
        )
    return trainer


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name not in _OURS or value is not None}


def _trainer(options: dict[str, Any], callbacks: list[Callback], loggers: list[Logger], folder: Path) -> Trainer:
    try:
        trainer = Trainer(
            **options,
            callbacks=callbacks,
            logger=loggers,
            default_root_dir=str(folder),
            plugins=[AtomicCheckpointIO()],
            enable_checkpointing=any(isinstance(callback, Checkpoint) for callback in callbacks),
            use_distributed_sampler=False,
        )
    except (MisconfigurationException, ModuleNotFoundError, ValueError, TypeError) as error:
        raise UserError(f"Lightning's Trainer refuses an option under trainer.*: {error}") from error
    EpochLoop.install(trainer)
    return trainer
