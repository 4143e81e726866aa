"""Load a trained module from its checkpoint alone."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any

import torch

from molgcn.blending.blend import FOLDER, Blend
from molgcn.calibration.calibration import Calibration
from molgcn.config.overrides import as_typed
from molgcn.config.run import BackendConfig, Config, WhichModels
from molgcn.data.applicability import is_domain
from molgcn.data.rdkit_version import check_rdkit
from molgcn.errors import UserError, counted
from molgcn.nn.registry import get_kind
from molgcn.tasks.registry import TASKS, build_task
from molgcn.training.checkpoint_file import load_checkpoint
from molgcn.training.checkpoint_format import config_of, features_of
from molgcn.training.members import REFIT, members_of, splits, trainings_of
from molgcn.training.predictor import MoleculePredictor

log = logging.getLogger(__name__)

_OWN_FEATURES = ("atom_feature_names", "bond_feature_names")
_LISTS = ("target_names", "target_units")
_LEVELS = ("num_atom_targets", "num_bond_targets")
_MOST_CLASSES = 1_000  # of targets of atoms and bonds, whose outputs are listed before the weights are compared


def find_checkpoint(path: str | Path | None, key: str = "ckpt", models: WhichModels = "auto") -> Path:
    """Return the checkpoint file that a key such as `ckpt` names: the file itself, or the best.ckpt of a run's folder.

    A run without validation has no best.ckpt. In its folder last.ckpt is taken. Of a cross-validation with `training.refit` it is the model
    of all molecules, unless `models` says otherwise. UserError where there is none.
    """
    if path is None:
        raise UserError("No checkpoint is named. Give ckpt=<run folder>/checkpoints/best.ckpt, or the run's folder.")
    path = Path(path).expanduser()
    if not path.is_dir():
        return path
    if refit := _refit(path, key, models):
        return find_checkpoint(refit, key)
    found = best_checkpoint(path)
    if found is None and members_of(path):
        trainings = trainings_of(path)
        complete = [training for training in trainings if best_checkpoint(training)]
        advice = f"Name one of them, as in {as_typed(key, complete[0])}." if complete else f"Continue it first: {as_typed('resume', path)}."
        raise UserError(f"{key}={path}: the folder holds a run of {counted(len(trainings), 'training')}. {advice}")
    if found is None:
        raise UserError(
            f"{key}={path}: the folder holds neither checkpoints/best.ckpt nor checkpoints/last.ckpt. Expected a run's folder or a "
            ".ckpt file."
        )
    log.info("The weights are those of %s", found)
    return found


def find_checkpoints(path: str | Path | None, models: WhichModels = "auto") -> list[Path]:
    """Return the checkpoint files that `ckpt` names: one, or one of each training of a run of several; see :func:`find_checkpoint`.

    `models` says which models a cross-validation stands for: "refit" (trained on all molecules), "folds", or "auto", which is refit where
    there is one.
    """
    folder = Path(path or "").expanduser()
    if path is not None and (refit := _refit(folder, "ckpt", models)):
        return find_checkpoints(refit)
    if path is None or not members_of(folder):
        return [find_checkpoint(path)]
    trainings = trainings_of(folder)
    found = [best_checkpoint(training) for training in trainings]
    if None in found:
        raise UserError(
            f"ckpt={path}: {trainings[found.index(None)]} has no checkpoint, so that the run is not complete. Continue it with "
            f"{as_typed('resume', folder)}, or name those of its trainings that are."
        )
    log.info("The weights are those of %s in %s", counted(len(found), "model"), folder)
    return [file for file in found if file is not None]


def _refit(folder: Path, key: str, models: WhichModels) -> Path | None:
    """Return the folder of a run's training on all molecules where it is to be taken."""
    refit, members = folder / REFIT, members_of(folder)
    if models != "auto" and not (members and splits(members)):
        kind = {"refit": "with training.refit", "folds": "or of repeated splits"}[models]
        raise UserError(
            f"models={models} is of a cross-validation {kind}, and {key}={folder} is {'an ensemble' if members else 'one model'}. Leave it "
            "out."
        )
    complete = bool(members) and (refit / "result.json").is_file()
    if models == "refit" and not complete:
        raise UserError(
            f"models=refit: {key}={folder} has no complete training on all molecules, {refit}. Add it with "
            f"{as_typed('resume', folder)} training.refit=true, or take models=folds."
        )
    if models == "auto" and members and refit.is_dir() and not complete:
        log.warning("%s is not complete, so that the models of the folds are taken. Continue it with %s", refit, as_typed("resume", folder))
    if models == "folds" or not complete:
        return None
    log.info("The model of all molecules, %s, is taken (models=folds takes those of the folds)", refit)
    return refit


def best_checkpoint(folder: Path) -> Path | None:
    """Return the best.ckpt of a training's folder, or its last.ckpt where there was no validation; None where there is neither."""
    places = (place / name for name in ("best.ckpt", "last.ckpt") for place in (folder / "checkpoints", folder))
    return next((file for file in places if file.is_file()), None)


def run_folder(checkpoint: Path) -> Path | None:
    """Return the folder of the run that wrote a checkpoint, or None where the file lies elsewhere."""
    folder = checkpoint.resolve().parents[1]
    return folder if checkpoint.resolve().parent.name == "checkpoints" and (folder / "config.yaml").is_file() else None


def load_module(path: str | Path, backend: BackendConfig | None = None, device: str = "cpu") -> MoleculePredictor:
    """Return the module of a checkpoint in evaluation mode, with its weights and its targets' scaling.

    It predicts with the moving average of the weights where there is one. Nothing in the file is executed: architecture, featuriser and
    scaling are plain values that are looked up in closed tables.

    Args:
        path: a checkpoint file or a run's folder; see :func:`find_checkpoint`.
        backend: the backend that computes the layers, whatever the run used. None takes the fastest that this machine has.
        device: "auto", "cpu", "cuda" or "cuda:<n>"; see :func:`choose_device`.

    Raises:
        UserError: If the file is not a checkpoint of molgcn, or its parts do not fit together.
    """
    path = find_checkpoint(path)
    target = choose_device(device)
    checkpoint = load_checkpoint(path)
    saved = _checked(checkpoint["molgcn"], path)
    features = features_of(saved, path)
    config = replace(config_of(saved, path), backend=backend or BackendConfig(), ckpt_path=None, resume=None)
    weights = checkpoint.get("state_dict")
    if not isinstance(weights, Mapping):
        raise UserError(f"{path} holds no weights. Expected a .ckpt file that molgcn wrote.")
    try:
        _check_sizes(config, saved, features, weights)
        module = _build(config, saved, features, weights)
        check_rdkit(
            path,
            module.versions.get("rdkit"),
            module.descriptor_names,
            generators=config.dataset.descriptor_generators or (),
            components=config.dataset.smiles_columns,
            standardize=config.dataset.standardize,
            tree_generators=config.dataset.tree_generators or (),
        )
        module.load_state_dict(weights)
    except (RuntimeError, KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"The weights in {path} do not belong to the architecture that it names: {reason[:300]}") from error
    module.calibration = _calibration(saved, module, path)
    if config.training.blend == "trees":
        folder = run_folder(path)
        if folder is None:
            raise UserError(
                f"{path} was trained with training.blend=trees, and its trees are in the folder {FOLDER} of its run. Name the run's folder "
                "or checkpoints/best.ckpt in it."
            )
        module.blend = Blend.load(folder, module.task, module.statistics)
    return module.eval().to(target)


def _calibration(saved: Mapping[str, Any], module: MoleculePredictor, path: Path) -> Calibration | None:
    values = saved.get("calibration")
    try:
        return None if values is None else Calibration.of_values(values, module.task)
    except ValueError as error:
        raise UserError(f"{path} cannot be used: {error}. Restore the file, or train again.") from error


def _build(config: Config, saved: Mapping[str, Any], features: str | None, weights: Mapping[str, Any]) -> MoleculePredictor:
    task = build_task(saved["task"], saved["target_names"], saved["target_units"], saved["num_classes"], config.dataset)
    dtypes = {name: getattr(weights.get(name), "dtype", torch.float32) for name in task.statistics_shapes()}
    module = MoleculePredictor(
        config,
        in_channels=saved["in_channels"],
        task=task,
        statistics={name: torch.ones(shape, dtype=dtypes[name]) for name, shape in task.statistics_shapes().items()},
        features=features,
        trained_on=saved.get("trained_on"),
        edge_channels=saved["edge_channels"],
        descriptor_names=saved.get("descriptor_names", []),
        atom_feature_names=saved.get("atom_feature_names", []),
        bond_feature_names=saved.get("bond_feature_names", []),
        num_components=saved.get("num_components", 1),
        **{key: saved.get(key, 0) for key in _LEVELS},
    )
    if isinstance(versions := saved.get("versions"), Mapping):
        module.versions = {name: number for name, number in versions.items() if isinstance(number, str)}
    return module


def _check_sizes(config: Config, saved: Mapping[str, Any], features: str | None, weights: Mapping[str, Any]) -> None:
    """Raise ValueError where the description and the weights differ in size, before memory is allocated for what it describes."""
    layers = (config.model.head_layers or 0) + (config.model.num_layers if get_kind(config.model.name).stacked else 1)
    if layers > len(weights):
        raise ValueError(f"it has {layers} layers, and {len(weights)} weights")
    with torch.device("meta"):
        wanted = _build(config, saved, features, weights).state_dict()
    for key, value in wanted.items():
        if tuple(weights[key].shape) != tuple(value.shape):
            raise ValueError(f"{key} has shape {tuple(weights[key].shape)} and not {tuple(value.shape)}")


def _checked(saved: Any, path: Path) -> Mapping[str, Any]:
    if isinstance(saved, Mapping) and saved.get("target_names") == []:
        raise UserError(
            f"{path} holds an encoder without a head, which predicts nothing. Start a training from its weights with "
            f"{as_typed('ckpt_path', path)}."
        )
    complete = (
        isinstance(saved, Mapping)
        and isinstance(saved.get("config"), Mapping)
        and type(saved.get("in_channels")) is int
        and type(saved.get("edge_channels")) in (int, NoneType)
        and isinstance(saved.get("task"), str)
        and saved["task"] in TASKS
        and type(saved.get("num_classes")) is int
        and isinstance(saved.get("features"), str | None)
        and all(_is_names(saved.get(key)) for key in _LISTS)
        and all(_is_names(saved.get(key, [])) for key in ("descriptor_names", *_OWN_FEATURES))  # older ones have none
        and type(saved.get("num_components", 1)) is int
        and all(type(saved.get(key, 0)) is int and saved.get(key, 0) >= 0 for key in _LEVELS)
        and len(saved["target_names"]) == len(saved["target_units"]) > 0
        and sum(saved.get(key, 0) for key in _LEVELS) <= len(saved["target_names"])
        and (saved["num_classes"] <= _MOST_CLASSES or not any(saved.get(key, 0) for key in _LEVELS))
        and (saved.get("trained_on") is None or is_domain(saved["trained_on"]))  # older ones do not say
    )
    if not complete:
        raise UserError(f"{path} does not say how it was trained. Expected a .ckpt file that this version of molgcn wrote.")
    return saved


def _is_names(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def require_features(module: MoleculePredictor, path: Path) -> str:
    """Return the featuriser of a module's SMILES; UserError if it was trained on graphs that did not come from SMILES."""
    if module.features is None:
        raise UserError(
            f"{path} was trained on graphs that were not computed from SMILES, so that no SMILES can be turned into its input. "
            "Pack such graphs with PackedMolecules.from_pyg and call molgcn.training.inference.predict_molecules."
        )
    return module.features


def choose_device(device: str) -> torch.device:
    """Return the device of a name, if there is such a one: `auto` (a GPU where there is one), `cpu`, `cuda` or `cuda:<n>`."""
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        chosen = torch.device(device)
    except RuntimeError:
        chosen = torch.device("meta")
    if chosen.type not in ("cpu", "cuda"):
        raise UserError(f"device={device} is not known. Expected auto, cpu, cuda or cuda:<number>.")
    if chosen.type == "cuda" and (chosen.index or 0) >= torch.cuda.device_count():
        raise UserError(f"device={device}, but torch sees {torch.cuda.device_count()} CUDA GPUs. Use device=auto or device=cpu.")
    return chosen
