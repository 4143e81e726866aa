"""Check that a checkpoint fits the run that starts or goes on from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from molgcn.config.layer_settings import LayerSettings
from molgcn.config.overrides import as_typed
from molgcn.config.run import Config, ModelConfig, parse
from molgcn.errors import UserError, counted
from molgcn.files.json_file import read_json
from molgcn.files.yaml_file import read_yaml
from molgcn.nn.registry import get_kind
from molgcn.tasks.registry import settled, task_of
from molgcn.training.module import MoleculeModule

AVERAGE = "ema.module."  # with which the keys of the moving average start in a checkpoint's state dict
_NEEDED = ("state_dict", "optimizer_states", "lr_schedulers", "loops", "callbacks", "train_loader", "rng", "train_loss", "metrics_csv_size")
# the hash shows whether data that was moved, or whose features are spelled in another way, is the same
_DATASET_KEYS_THAT_MAY_CHANGE = (
    *("path", "val_path", "test_path", "descriptors_path", "atom_features_path", "bond_features_path"),
    *("features", "num_workers", "cache_dir", "eval_batch_size", "resident"),
)


def check_same_keys(config: Config, folder: Path) -> Config:
    """Refuse changes of keys that a resumed run cannot change, before data is read or anything is written.

    A change of such a key would leave the weights without meaning, or make the run compare losses that are not comparable. The message
    names it and says what to do instead. Keys of the task that are `auto` get the values of the interrupted run in `folder`.
    """
    before = parse(Config, read_yaml(folder / "config.yaml", dict))
    if before.task != "auto" and config.task in ("auto", before.task):  # which it still is in a run of several trainings
        config = settled(config, task_of(before))
    for (key, had, why), (_, value, _) in zip(_fixed_keys(before), _fixed_keys(config), strict=True):
        if had != value:
            raise UserError(
                f"The run in {folder} trained with {key}={had}, which cannot become {value} when it is resumed: {why}. Leave the key out, "
                f"or start a new run from the weights with {_start_from_weights(folder)}."
            )
    return config


def _fixed_keys(config: Config) -> Iterator[tuple[str, Any, str]]:
    """Yield each key that cannot change, its value and why it cannot."""
    yield "task", config.task, "its outputs mean this"
    yield "training.blend", config.training.blend, "it is a run with these models"
    for key, value in asdict(config.dataset).items():
        if key not in _DATASET_KEYS_THAT_MAY_CHANGE:
            yield f"dataset.{key}", value, "it goes on with the same molecules in the same parts and batches"
    for key, value in asdict(config.model).items():
        yield f"model.{key}", value, "its weights are of this network"
    for section in ("optimizer", "scheduler"):
        for key, value in asdict(getattr(config, section)).items():
            yield f"{section}.{key}", value, "its optimiser and schedule go on where they stood"
    for key in ("freeze", "freeze_head", "unfreeze"):
        yield f"training.{key}", getattr(config.training, key), "its optimiser has the weights that learn"
    yield "training.accumulate_batches", config.training.accumulate_batches, "its schedule counts the optimiser's steps"
    losses = ("loss", "huber_delta", "evidential_regularization", "quantile_alpha", "focal_gamma", "class_weights", "task_weights")
    for key in (*losses, "monitor"):
        yield f"training.{key}", getattr(config.training, key), "its best loss so far is of this kind"
    yield "training.metrics", config.training.metrics, "metrics.csv has a column for each of them"
    for key in ("limit_val_batches", "overfit_batches"):
        yield f"trainer.{key}", config.trainer.get(key), "its best loss so far is of these molecules"
    yield "training.ensemble", config.training.ensemble, "it is a run of this many models"
    yield "seed", config.seed, "its permutations are drawn with this one"
    yield "ckpt_path", config.ckpt_path, "it has left the weights behind that it started from"


def check_goes_on(module: MoleculeModule, checkpoint: dict[str, Any], folder: Path) -> None:
    """Refuse, before anything is written, a checkpoint or number of epochs with which the run in `folder` cannot go on."""
    if missing := [key for key in _NEEDED if key not in checkpoint]:
        raise UserError(
            f"{folder / 'checkpoints' / 'last.ckpt'} lacks {', '.join(missing)}, without which a run cannot go on. Restore the file that "
            f"the run wrote, or start a new run from the weights with {_start_from_weights(folder)}."
        )
    check_same_network(module, checkpoint, folder / "checkpoints" / "last.ckpt")
    _check_average(module, checkpoint, folder)
    _check_log(checkpoint["metrics_csv_size"], folder)
    _check_epochs(module.config, checkpoint, folder)


def _start_from_weights(folder: Path) -> str:
    return as_typed("ckpt_path", folder / "checkpoints" / "last.ckpt")


def check_data(data_hash: str, folder: Path) -> None:
    """Raise UserError where the hash of the data is no longer the one that the run in `folder` has noted."""
    path = folder / "provenance.json"
    noted = read_json(path) if path.exists() else {"data_hash": data_hash}
    before = str(noted.get("data_hash") if isinstance(noted, dict) else noted)
    if before != data_hash:
        raise UserError(
            f"The data of {folder} has changed since the run was interrupted (hash {before[:12]}, now {data_hash[:12]}). "
            f"Restore it, or start a new run from the weights with {_start_from_weights(folder)}."
        )


def _check_log(size: int, folder: Path) -> None:
    path = folder / "metrics.csv"
    there = path.stat().st_size if path.exists() else 0
    if there < size:
        raise UserError(
            f"{path} has {there:,} bytes, of {size:,} that the run had written by its last checkpoint: rows are missing. Restore the file, "
            f"or start a new run from the weights with {_start_from_weights(folder)}."
        )


def check_same_network(module: MoleculeModule, checkpoint: dict[str, Any], path: Path, but: tuple[str, ...] = ()) -> None:
    """Check that the weights in a checkpoint have the names and shapes of the module's, but for keys that start with one of `but`.

    The message names the first difference and the options that cause it.
    """
    saved, mine = (
        {key: tuple(value.shape) for key, value in weights.items() if key.startswith("model.") and not key.startswith(but)}
        for weights in (checkpoint["state_dict"], module.state_dict())
    )
    if saved != mine:
        key = next(key for key in sorted(saved.keys() | mine.keys()) if saved.get(key) != mine.get(key))
        hint = " ".join(changed_options(module.config.model, checkpoint["molgcn"]["config"]["model"]).values())
        raise UserError(
            f"The checkpoint {path} is of another architecture: {key[6:]} has shape {saved.get(key, 'none')} there and "
            f"{mine.get(key, 'none')} here. " + (f"Give {hint}." if hint else "Use its features, targets and loss.")
        )


def changed_options(model: ModelConfig, saved: Mapping[str, Any]) -> dict[str, str]:
    """Return the options that a saved network has and another one has not, as overrides, by their names.

    Of layers with another name it is `model=<name>`, and then the options that this network has.
    """
    here, layer = dict(_options(asdict(model))), get_kind(saved.get("name", model.name))
    changed = {name: value for name, value in _options(saved) if here.get(name, value) != value}
    named = {"name": f"model={changed.pop('name')}"} if "name" in changed else {}
    own = {name for name in changed if name not in LayerSettings.__dataclass_fields__ or name in layer.own_settings}
    return named | {name: f"model.{name}={'null' if value is None else value}" for name, value in changed.items() if name in own}


def _options(model: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield a network's options by their dotted names."""
    for name, value in model.items():
        if isinstance(value, Mapping):
            yield from _options(value, f"{prefix}{name}.")
        else:
            yield prefix + name, list(value) if isinstance(value, tuple) else value


def _check_average(module: MoleculeModule, checkpoint: dict[str, Any], folder: Path) -> None:
    had = any(key.startswith(AVERAGE) for key in checkpoint["state_dict"])
    if had != (module.ema is not None):
        raise UserError(
            f"The run in {folder} trained {'with' if had else 'without'} a moving average, so that training.ema_decay cannot become "
            f"{module.config.training.ema_decay} when it is resumed. Leave the key out, or start a new run from the weights with "
            f"{_start_from_weights(folder)}."
        )


def _check_epochs(config: Config, checkpoint: dict[str, Any], folder: Path) -> None:
    done = checkpoint["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"]
    limit = config.trainer.get("max_epochs")
    if limit is not None and 0 <= limit < done:
        raise UserError(
            f"trainer.max_epochs={limit} is fewer than the {counted(done, 'epoch')} that the run in {folder} has trained. Give more "
            "to continue, or take its best weights as they are: checkpoints/best.ckpt."
        )
