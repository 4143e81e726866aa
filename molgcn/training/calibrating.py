"""Calibration of a run: checked before training, fitted after it, and stored in its checkpoints or, of several models, its folder."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from molgcn.calibration.assessment import assess
from molgcn.calibration.calibration import Calibration, Part
from molgcn.calibration.methods import check_labels, chosen_methods
from molgcn.config.training import TrainingConfig
from molgcn.data.label_columns import measured
from molgcn.data.load import LoadedDataset
from molgcn.data.splits.parts import CALIBRATION, IN_WORDS
from molgcn.errors import UserError
from molgcn.files.json_file import read_json, write_json
from molgcn.tasks.base import Task
from molgcn.training.checkpoint_file import load_checkpoint, write
from molgcn.training.inference import Models
from molgcn.training.predictor import MoleculePredictor
from molgcn.training.restore import run_folder

log = logging.getLogger(__name__)
FILE = "calibration.json"


def check_calibration(config: TrainingConfig, task: Task, data: LoadedDataset) -> None:
    """Check before training that the configuration's calibration fits the task, the parts and their labels, so that it can be fitted later.

    Targets without the labels that calibration needs are warnings.
    """
    methods = chosen_methods(config.calibration, task)
    if not methods:
        if CALIBRATION in data.splits:
            log.warning("Nothing uses the calibration part: say what to do with it, for example training.calibration=auto")
        return
    part = _part(config, data.splits)
    targets = measured(data.part(part)).targets
    check_labels(methods, task, targets, config.calibration_alpha, f"the {IN_WORDS[part]} part")


def calibrated(models: Models, config: TrainingConfig) -> Models:
    """Return models of one split with the calibration of their predictions that a configuration asks for, if it asks for one."""
    methods = chosen_methods(config.calibration, models.task)
    if not methods:
        return models
    part, alpha = _part(config, models.data[0].splits), config.calibration_alpha
    predicted = models.predicted(part)
    fitted = Calibration.fit(models.task, predicted.values, predicted.targets, methods, alpha, config.conformal_sets, part)
    return replace(models, calibration=fitted)


def store_calibration(calibration: Calibration, module: MoleculePredictor, checkpoints: Sequence[Path]) -> None:
    """Set a module's attribute `calibration`, and store it in those checkpoint files that are there and hold the module's weights."""
    module.calibration = calibration
    mine = module.state_dict()
    for path in checkpoints:
        if path.is_file():
            checkpoint = load_checkpoint(path)
            weights = checkpoint["state_dict"]
            if weights.keys() == mine.keys() and all(torch.equal(value, mine[key].cpu()) for key, value in weights.items()):
                checkpoint["molgcn"]["calibration"] = calibration.to_values()
                write(checkpoint, path)


def measured_uncertainties(models: Models, part: str) -> dict[str, float]:
    """Return measures of the uncertainties of what models predict of a part, by "<part>/<measure>/<target>"; none where there are none."""
    predicted = models.predicted(part)
    found = assess(models.task, models.calibration, predicted.values, predicted.targets)
    return {f"{part}/{key}": value for key, value in found.items()}


def measured_parts(models: Models, parts: Iterable[str]) -> dict[str, float]:
    """Return the metrics of what models predict of parts, and measures of their uncertainties, by "<part>/<metric>/<target>"."""
    found: dict[str, float] = {}
    for part in parts:
        predicted = models.predicted(part)
        found |= {f"{part}/{key}": value for key, value in models.task.measure(predicted.values, predicted.labels).items()}
        if part != "train":  # uncertainties do not describe the errors there, which are smaller than elsewhere
            found |= measured_uncertainties(models, part)
    return found


def _part(config: TrainingConfig, splits: Mapping[str, np.ndarray]) -> Part:
    if CALIBRATION in splits and config.calibration_on_validation:
        raise UserError(
            "training.calibration_on_validation=true, but there is a calibration part, which suits better: it did not choose the epoch. "
            "Leave the key out, or use dataset.calibration_fraction=0."
        )
    if CALIBRATION in splits:
        return "calibration"
    if config.calibration_on_validation and len(splits["val"]):
        return "val"
    raise UserError(
        f"training.calibration={config.calibration} needs molecules that neither training nor the choice of an epoch has seen. Cut them "
        "from training, for example with dataset.calibration_fraction=0.1. training.calibration_on_validation=true takes the validation "
        "part instead, if there is one; its results are approximate, since validation chose the epoch."
    )


def save_joint_calibration(folder: Path, calibration: Calibration | None, checkpoints: Sequence[Path]) -> None:
    """Write the calibration of the mean prediction of checkpoints into their run's folder; None removes an earlier one."""
    if calibration is None:
        (folder / FILE).unlink(missing_ok=True)
    else:
        write_json(folder / FILE, {"checkpoints": _digests(checkpoints), "calibration": calibration.to_values()})


def load_joint_calibration(checkpoints: Sequence[Path], task: Task) -> Calibration | None:
    """Return the calibration of the mean prediction of checkpoints; None where there is none for exactly these files."""
    run = common_folder(checkpoints)
    if run is None or not (run / FILE).is_file():
        return None
    saved = read_json(run / FILE)
    try:
        return Calibration.of_values(saved["calibration"], task) if saved["checkpoints"] == _digests(checkpoints) else None
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{run / FILE} cannot be used: {error}. Restore it, or delete it to predict without calibration.") from error


def common_folder(checkpoints: Sequence[Path]) -> Path | None:
    """Return the deepest folder that holds the folders of the checkpoints' trainings; None where one lies outside any."""
    folders = [run_folder(checkpoint) for checkpoint in checkpoints]
    found = [folder for folder in folders if folder is not None]
    return Path(os.path.commonpath(found)) if len(found) == len(folders) else None


def _digests(checkpoints: Sequence[Path]) -> list[str]:
    """Return the SHA-256 digests of the files, sorted: once a model is trained further, its earlier calibration no longer applies."""
    return sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in checkpoints)
