"""Calibration at the end of a training run: what is checked before it, fitted after it and stored in its checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from molgcn.calibration.assessment import assess
from molgcn.calibration.calibration import Calibration, Part, TargetCalibration
from molgcn.calibration.methods import check_labels, chosen_methods, suits
from molgcn.calibration.outputs import Numbers, outputs_of
from molgcn.config.training import TrainingConfig
from molgcn.data.label_columns import measured
from molgcn.data.load import LoadedDataset
from molgcn.data.splits.parts import CALIBRATION, IN_WORDS
from molgcn.errors import UserError
from molgcn.tasks.base import Task
from molgcn.training.checkpoint_reader import load_checkpoint
from molgcn.training.checkpoint_writer import write
from molgcn.training.inference import predict_molecules
from molgcn.training.module import MoleculeModule
from molgcn.training.result import RunResult

log = logging.getLogger(__name__)


def check_calibration(config: TrainingConfig, task: Task, data: LoadedDataset) -> None:
    """Check before training that the configuration's calibration can be fitted after it.

    Targets without the labels that calibration needs are warnings.

    Args:
        config: names methods and their options.
        task: what is predicted.
        data: the data set with its split.

    Raises:
        UserError: If a method does not fit the task, the labels of any target or the parts. The message names the key, the target or the
            part.
    """
    methods = chosen_methods(config.calibration, task)
    if not methods:
        if CALIBRATION in data.splits:
            log.warning("Nothing uses the calibration part: say what to do with it, for example training.calibration=auto")
        return
    part = _part(config, data.splits)
    targets = measured(data.part(part)).targets
    check_labels(methods, task, targets, config.calibration_alpha, IN_WORDS[part])


def calibrate(module: MoleculeModule, data: LoadedDataset, checkpoints: Sequence[Path]) -> None:
    """Fit the calibration that the module's configuration asks for, and store it in the checkpoints that hold the module's weights.

    Args:
        module: the module whose weights are calibrated. Its attribute `calibration` is set.
        data: the data set of the run.
        checkpoints: checkpoint files of the run. A file that is missing or holds other weights stays as it is.
    """

    def predicted(part: Part) -> tuple[np.ndarray, np.ndarray]:
        molecules = measured(data.part(part))
        return predict_molecules(module, molecules, module.config.dataset.batch_size), molecules.targets

    calibration = fit_calibration(module.config.training, module.task, data.splits, predicted)
    if calibration is None:
        return
    module.calibration = calibration
    for path in checkpoints:
        if path.is_file():
            _store(module, path)


def fit_calibration(
    config: TrainingConfig, task: Task, splits: Mapping[str, np.ndarray], predicted: Callable[[Part], tuple[np.ndarray, np.ndarray]]
) -> Calibration | None:
    """Fit the calibration that a configuration asks for.

    Args:
        config: names methods and their options.
        task: what is predicted.
        splits: the indices of each part's molecules.
        predicted: returns the predictions [n, P] and the exact targets [n, T] of a part's molecules.

    Returns:
        The calibration, or None where the configuration asks for none.
    """
    methods = chosen_methods(config.calibration, task)
    if not methods:
        return None
    part, alpha = _part(config, splits), config.calibration_alpha
    predictions, targets = predicted(part)
    columns = zip(outputs_of(task, predictions), targets.T, strict=True)
    fitted = [
        TargetCalibration.fit(output, true, [name for name in methods if suits(name, output)], alpha, config.conformal_sets)
        for output, true in columns
    ]
    return Calibration(part, alpha, fitted)


def has_uncertainties(module: MoleculeModule) -> bool:
    """Return whether the module predicts standard deviations or was calibrated."""
    outputs = outputs_of(module.task, np.zeros((0, module.task.num_predictions)))
    return module.calibration is not None or any(isinstance(one, Numbers) and one.std is not None for one in outputs)


def with_uncertainties(result: RunResult, module: MoleculeModule, data: LoadedDataset) -> RunResult:
    """Return the result with measures of its uncertainties on validation and test; see :func:`molgcn.calibration.assessment.assess`.

    A module without uncertainties leaves the result as it is.
    """
    if not has_uncertainties(module):
        return result
    metrics = dict(result.metrics)
    for part in ("val", "test"):
        if len(data.splits[part]):
            molecules = measured(data.part(part))
            predictions = predict_molecules(module, molecules, module.config.dataset.batch_size)
            found = assess(module.task, module.calibration, predictions, molecules.targets)
            metrics |= {f"{part}/{key}": value for key, value in found.items()}
    return replace(result, metrics=metrics, calibrated="" if module.calibration is None else module.calibration.described)


def _part(config: TrainingConfig, splits: Mapping[str, np.ndarray]) -> Part:
    """Return the part to fit on.

    Raises:
        UserError: If no part may be used.
    """
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


def _store(module: MoleculeModule, path: Path) -> None:
    checkpoint = load_checkpoint(path)
    weights, mine = checkpoint["state_dict"], module.state_dict()
    if weights.keys() == mine.keys() and all(torch.equal(value, mine[key].cpu()) for key, value in weights.items()):
        assert module.calibration is not None
        checkpoint["molgcn"]["calibration"] = module.calibration.to_values()
        write(checkpoint, path)
