"""Ensembles: one or several trained models that predict together, each once or several times with its dropout active."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from molgcn.calibration.calibration import Calibration
from molgcn.config.run import BackendConfig, WhichModels
from molgcn.data.applicability import common_domain
from molgcn.data.config import DatasetConfig
from molgcn.data.packed import PackedMolecules
from molgcn.errors import UserError
from molgcn.screening.inputs import ModelInputs
from molgcn.training.calibrating import load_joint_calibration
from molgcn.training.inference import blended, common_digits
from molgcn.training.predictor import MoleculePredictor
from molgcn.training.restore import find_checkpoints, load_module, require_features, run_folder


class Ensemble:
    """Models of the same task, targets, units and features, whose predictions are averaged; made by :meth:`load`.

    Attributes:
        members: the trained modules, in evaluation mode and on one device.
        checkpoints: the checkpoint of each member.
        inputs: what the models take of a row.
    """

    def __init__(self, members: Sequence[MoleculePredictor], checkpoints: Sequence[Path], dropout_samples: int = 0, seed: int = 0) -> None:
        self.members, self.checkpoints = members, checkpoints
        self.dropout_samples, self.seed = dropout_samples, seed
        self.task, self.levels = members[0].task, members[0].levels
        self.names, self.units = list(self.task.names), list(self.task.units)
        self._of_mean = load_joint_calibration(checkpoints, self.task)
        for member, checkpoint in zip(members, checkpoints, strict=True):
            require_features(member, checkpoint)
        inputs = [ModelInputs.of(member) for member in members]
        self.inputs = replace(inputs[0], bonds=any(one.bonds for one in inputs))
        self.tree_generators = tuple(members[0].config.dataset.tree_generators or ())
        self.smiles_columns = list(dict.fromkeys(name for member in members for name in member.config.dataset.smiles_columns))
        self.trained_on = common_domain([member.trained_on for member in members])
        first, *others = map(_shared, members, inputs)
        for checkpoint, other in zip(checkpoints[1:], others, strict=True):
            for what, theirs in other.items():
                if theirs != first[what]:
                    raise UserError(
                        f"{checkpoint} and {checkpoints[0]} differ in their {what}: {theirs} and {first[what]}. Members of an ensemble "
                        "predict the same targets, in the same units and from the same features; predict with each by itself."
                    )
        if dropout_samples:
            for member, checkpoint in zip(members, checkpoints, strict=True):
                activate_dropout(member, checkpoint)

    @classmethod
    def load(
        cls,
        checkpoints: Sequence[str | Path | None],
        backend: BackendConfig | None = None,
        device: str = "cpu",
        dropout_samples: int = 0,
        seed: int = 0,
        models: WhichModels = "auto",
    ) -> Ensemble:
        """Load the models of checkpoints.

        Args:
            checkpoints: checkpoint files or folders of runs. The folder of a run of several trainings stands for all of them, and None for
                a key of the configuration that has no value.
            backend: what computes the layers; None is the default.
            device: where the models compute.
            dropout_samples: the number of passes of each member with its dropout active, each of which counts as a model. 0 means one pass
                without dropout.
            seed: random seed of the dropout.
            models: which models the folder of a cross-validation stands for; see :func:`molgcn.training.restore.find_checkpoints`.

        Raises:
            UserError: when a checkpoint cannot be read, the models differ in their targets or inputs or take other input than SMILES, or
                they have no dropout although `dropout_samples` asks for it.
        """
        paths = [file for path in checkpoints for file in find_checkpoints(path, models=models)]
        members = [load_module(path, backend, device) for path in paths]
        return cls(members, paths, dropout_samples, seed)

    @property
    def trainings(self) -> list[Path]:
        """The folder of each model's training, where it has one."""
        return [folder for checkpoint in self.checkpoints if (folder := run_folder(checkpoint))]

    @property
    def dataset(self) -> DatasetConfig:
        return replace(self.members[0].config.dataset, features=self.inputs.features)

    @property
    def num_passes(self) -> int:
        """The number N of predictions that are made of each molecule."""
        return len(self.members) * max(self.dropout_samples, 1)

    def named(self, passes: np.ndarray) -> dict[str, np.ndarray]:
        """Return the predictions [N, M, P] of every pass, each [M, P] by its name, such as "model 0"."""
        return {f"{'pass' if self.dropout_samples else 'model'} {number}": one for number, one in enumerate(passes)}

    def check_several(self) -> None:
        """Raise UserError where there is a single pass, whose predictions are those that are combined."""
        if self.num_passes == 1:
            raise UserError(
                "members=true shows what each of several models predicts, and ckpt= names one model. Leave it out, or name the folder of a "
                "run of several trainings; predict also takes several runs, as in ckpt=[runs/a,runs/b]."
            )

    @property
    def calibration(self) -> Calibration | None:
        """The calibration of the single model or of the mean of several models, or None. Passes with dropout have none."""
        if self.num_passes == 1:
            return self.members[0].calibration
        return None if self.dropout_samples else self._of_mean

    @property
    def digits(self) -> list[int]:
        return common_digits(self.members)

    @torch.no_grad()
    def predict(self, molecules: PackedMolecules, start: int = 0) -> np.ndarray:
        """Predict M molecules as one batch in every pass, [N, M, P], with the rows of :func:`molgcn.training.inference.predict_molecules`.

        `start` is the number of the first row. It seeds the dropout, which so differs between batches but not between runs.
        """
        device = self.members[0].device
        batch = molecules.batch(slice(None), device=device)
        with seeded(self.seed, start, device) if self.dropout_samples else nullcontext():
            passes = [(member, member(batch).cpu().numpy()) for member in self.members for _ in range(max(self.dropout_samples, 1))]
        return np.stack([blended(member, found, molecules) for member, found in passes])


def _shared(member: MoleculePredictor, inputs: ModelInputs) -> dict[str, Any]:
    """Return what the members of an ensemble have in common, by its name in messages."""
    task, dataset = member.task, member.config.dataset
    return {
        "tasks": task.name,
        "numbers of classes": task.num_classes,
        "targets": member.target_names,
        "units": member.target_units,
        "targets of atoms and bonds": member.levels,
        "features": inputs.features,
        "predictions": task.described,
        "components": ", ".join(inputs.components) or "none",
        "standard forms": inputs.standardize,
        "descriptors": inputs.descriptors,
        **{f"own features of {of}s": names for of, names in inputs.own_features.items()},
        "trees": ", ".join(dataset.tree_generators or ()) or "none",
        "columns of predictions": task.columns,
    }


def activate_dropout(module: MoleculePredictor, source: Path | str) -> None:
    """Let a module in evaluation mode predict with its dropout active. Batch norms keep their statistics.

    The fused operators have no dropout in evaluation, so that backend=reference replaces backend=fused.

    Source: Gal and Ghahramani, "Dropout as a Bayesian Approximation", ICML 2016.
    """
    network = module.averaged
    if not network.dropout and not network.settings.get("attention_dropout"):
        raise UserError(
            f"{source} was trained without dropout, so that all passes would predict the same. Leave dropout_samples out, or train with "
            "model.dropout=0.1."
        )
    if network.backend.name == "fused":
        network = network.on_backend("reference")
    network.train()
    for layer in network.modules():
        if isinstance(layer, nn.modules.batchnorm._BatchNorm):
            layer.eval()
    module.model, module.ema = network, None


@contextmanager
def seeded(seed: int, start: int, device: torch.device) -> Iterator[None]:
    """Seed torch's generator of a device by a run's seed and the batch's first row within the block."""
    generator = torch.cuda.default_generators[device.index] if device.type == "cuda" else torch.default_generator
    before = generator.get_state()
    generator.manual_seed(int(np.random.SeedSequence([seed, start]).generate_state(1)[0]))
    try:
        yield
    finally:
        generator.set_state(before)
