"""Predict with the models of a run of several trainings: each one predicts the molecules that its own split has in a part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from molgcn.calibration.calibration import Calibration
from molgcn.config.run import Config, parse
from molgcn.data.datamodule import load_molecules_once
from molgcn.data.packed import PackedMolecules
from molgcn.data.splits.parts import Split
from molgcn.data.splits.rows import rows_to_split
from molgcn.data.splits.saved import load_split
from molgcn.files.yaml_file import read_yaml
from molgcn.screening.ensemble import combined, common_digits
from molgcn.tasks.base import Task
from molgcn.training.compatible import check_data
from molgcn.training.inference import predict_molecules
from molgcn.training.members import trainings_of
from molgcn.training.module import MoleculeModule
from molgcn.training.restore import best_checkpoint, load_module


@dataclass(frozen=True)
class Models:
    """The trained models of a run with the split of each, over one set of molecules.

    Attributes:
        modules: the N modules.
        checkpoints: the checkpoint file of each module.
        splits: the split of each module, as positions in `molecules`.
        molecules: the set of molecules.
        title: the name of the molecules' source.
        data_hash: the hash of the data.
        calibration: the calibration of what all models predict together, or None.
    """

    modules: Sequence[MoleculeModule]
    checkpoints: Sequence[Path]
    splits: Sequence[Split]
    molecules: PackedMolecules
    title: str
    data_hash: str
    calibration: Calibration | None = None

    @property
    def task(self) -> Task:
        """The task that all models share."""
        return self.modules[0].task

    @property
    def digits(self) -> list[int]:
        """The significant digits of each of the P columns of predictions."""
        return common_digits(self.modules)

    def average(self, part: str, batch_size: int) -> tuple[np.ndarray, np.ndarray]:
        """Predict each molecule by the models whose split has it in a part.

        Args:
            part: "train", "val" or "test".
            batch_size: molecules per batch.

        Returns:
            The sorted positions, int64 [M], of the molecules that any split has in the part, and their combined predictions, float64
            [M, P].
        """
        found, predictions, _ = self.predict(part, batch_size)
        return found, predictions

    def predict(self, part: str, batch_size: int) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
        """Predict each molecule as :meth:`average` does.

        Returns:
            What :meth:`average` returns, and the standard deviations over models, float64 [M, P], NaN where a single model predicts a
            molecule. None stands for them where no molecule has several models.
        """
        pairs = list(zip(self.modules, self.splits, strict=True))
        predicted = [predict_molecules(module, self.molecules[split[part]], batch_size) for module, split in pairs]
        passes = np.full((len(pairs), len(self.molecules), predicted[0].shape[1]), np.nan)
        known = np.zeros(passes.shape[:2], bool)
        for number, (split, values) in enumerate(zip(self.splits, predicted, strict=True)):
            passes[number, split[part]] = values
            known[number, split[part]] = True
        together, deviation = np.full(passes.shape[1:], np.nan), np.full(passes.shape[1:], np.nan)
        by_models, group = np.unique(known, axis=1, return_inverse=True)
        for number, models in enumerate(by_models.T):
            if models.any():
                chosen = np.flatnonzero(group.reshape(-1) == number)
                together[chosen], spread = combined(self.task, passes[np.ix_(models, chosen)])
                if spread is not None:
                    deviation[chosen] = spread
        found = np.flatnonzero(known.any(axis=0))
        return found, together[found], deviation[found] if known.sum(axis=0).max(initial=0) > 1 else None


def load_models(config: Config, folder: Path) -> Models:
    """Load all models of a run of several trainings, each with the split that its training saved.

    Args:
        config: the run's configuration, whose backend and accelerator predict.
        folder: the run's folder.

    Raises:
        UserError: If a file is damaged, or the data has changed since.
    """
    trainings = trainings_of(folder)
    device = "cpu" if config.trainer.get("accelerator") == "cpu" else "auto"
    saved = parse(Config, read_yaml(trainings[0] / "config.yaml", dict))
    molecules, source, data_hash = load_molecules_once(saved.dataset)
    for training in trainings:
        check_data(data_hash, training)
    checkpoints = [best_checkpoint(training) or training for training in trainings]
    modules = [load_module(checkpoint, config.backend, device) for checkpoint in checkpoints]
    files = [training / "splits.json" for training in trainings]
    splits = [rows_to_split(load_split(file), molecules, str(file), source.title) for file in files]
    return Models(modules, checkpoints, splits, molecules, source.title, data_hash)
