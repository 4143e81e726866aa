"""What a checkpoint that training starts or goes on from must have in common with the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from molgcn.config import Config
from molgcn.errors import UserError
from molgcn.json_file import read_json
from molgcn.training.regressor import MoleculeRegressor

AVERAGE = "ema.module."  # of a checkpoint's keys


def check_goes_on(module: MoleculeRegressor, data_hash: str, checkpoint: dict[str, Any], folder: Path) -> None:
    """Refuses, before anything is written, what a resumed run cannot change, or would in silence make nothing of.

    Args:
        module: of the run that goes on, with its configuration.
        data_hash: of its data.
        checkpoint: from which it goes on.
        folder: of the run.

    Raises:
        UserError: naming the key, and what to do instead.
    """
    _check_data(data_hash, folder)
    check_same_network(module, checkpoint, folder / "checkpoints" / "last.ckpt")
    _check_average(module, checkpoint, folder)
    _check_optimizer(module.config, folder)
    _check_epochs(module.config, checkpoint, folder)


def _check_data(data_hash: str, folder: Path) -> None:
    path = folder / "provenance.json"
    before = read_json(path)["data_hash"] if path.exists() else data_hash
    if before != data_hash:
        raise UserError(
            f"The data of {folder} has changed since the run was interrupted (hash {before[:12]}, now {data_hash[:12]}). "
            f"Restore it, or start a new run from the weights with ckpt_path={folder / 'checkpoints' / 'last.ckpt'}."
        )


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


def _check_optimizer(config: Config, folder: Path) -> None:
    """Refuses what the checkpoint's own optimiser and schedule would make nothing of."""
    saved: Any = OmegaConf.load(folder / "config.yaml")
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


def _check_epochs(config: Config, checkpoint: dict[str, Any], folder: Path) -> None:
    done = checkpoint["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"]
    limit = config.trainer.get("max_epochs")
    if limit is not None and 0 <= limit < done:
        raise UserError(
            f"trainer.max_epochs={limit} is fewer than the {done} epochs that the run in {folder} has behind it. Give more "
            "to continue, or take its best weights as they are: checkpoints/best.ckpt."
        )
