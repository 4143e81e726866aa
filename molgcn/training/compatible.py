"""What a checkpoint that training starts or goes on from must have in common with the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lightning import Trainer
from omegaconf import OmegaConf

from molgcn.config import Config
from molgcn.errors import UserError
from molgcn.training.regressor import MoleculeRegressor

AVERAGE = "ema.module."  # of a checkpoint's keys


def check_goes_on(trainer: Trainer, module: MoleculeRegressor, checkpoint: dict[str, Any], before: str, folder: Path) -> None:
    """Refuses what a resumed run cannot change, or would in silence make nothing of.

    Args:
        trainer: of the run that goes on.
        module: its model.
        checkpoint: from which it does.
        before: config.yaml of the run.
        folder: of the run.

    Raises:
        UserError: naming the key, and what to do instead.
    """
    check_same_network(module, checkpoint, folder / "checkpoints" / "last.ckpt")
    _check_average(module, checkpoint, folder)
    _check_optimizer(module.config, before, folder)
    _check_epochs(trainer, checkpoint, folder)


def check_same_network(module: MoleculeRegressor, checkpoint: dict[str, Any], path: Path) -> None:
    """Raises UserError where a checkpoint's weights are not the module's."""
    saved = {key: tuple(value.shape) for key, value in checkpoint["state_dict"].items() if key.startswith("model.")}
    mine = {key: tuple(value.shape) for key, value in module.state_dict().items() if key.startswith("model.")}
    if saved != mine:
        key = next(key for key in sorted(saved.keys() | mine.keys()) if saved.get(key) != mine.get(key))
        model = checkpoint["molgcn"]["config"]["model"]
        changed = {name: value for name, value in model.items() if getattr(module.config.model, name) != value}
        hint = " ".join(f"model.{name}={'null' if value is None else value}" for name, value in changed.items())
        raise UserError(
            f"The checkpoint {path} is of another architecture: {key[6:]} has shape {saved.get(key, 'none')} there and "
            f"{mine.get(key, 'none')} here. " + (f"Give {hint}." if hint else "Use the features and targets that it was trained with.")
        )


def _check_average(module: MoleculeRegressor, checkpoint: dict[str, Any], folder: Path) -> None:
    had = any(key.startswith(AVERAGE) for key in checkpoint["state_dict"])
    if had != (module.ema is not None):
        raise UserError(
            f"The run in {folder} trained {'with' if had else 'without'} a moving average, so that training.ema_decay cannot become "
            f"{module.config.training.ema_decay} when it is resumed. Leave the key out, or start a new run from the weights with "
            f"ckpt_path={folder / 'checkpoints' / 'last.ckpt'}."
        )


def _check_optimizer(config: Config, before: str, folder: Path) -> None:
    """Refuses what the checkpoint's own optimiser and schedule would make nothing of."""
    saved: Any = OmegaConf.create(before)
    given = OmegaConf.create(config.to_dict())
    for section in ("optimizer", "scheduler"):
        for key, value in given[section].items():
            had = saved.get(section, {}).get(key, value)
            if had != value:
                raise UserError(
                    f"The run in {folder} trained with {section}.{key}={had}, which cannot become {value} when it is resumed: its "
                    "optimiser and schedule go on where they stood. Leave the key out, or start a new run from the weights with "
                    f"ckpt_path={folder / 'checkpoints' / 'last.ckpt'}."
                )


def _check_epochs(trainer: Trainer, checkpoint: dict[str, Any], folder: Path) -> None:
    done = checkpoint["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"]
    if trainer.max_epochs is not None and 0 <= trainer.max_epochs < done:
        raise UserError(
            f"trainer.max_epochs={trainer.max_epochs} is fewer than the {done} epochs that the run in {folder} has behind it. Give more "
            "to continue, or take its best weights as they are: checkpoints/best.ckpt."
        )
