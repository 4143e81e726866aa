"""Ensembles: one or several trained models that predict together, each once or several times with dropout."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from molgcn.calibration.calibration import Calibration
from molgcn.config.run import BackendConfig, WhichModels
from molgcn.data.applicability import common_domain
from molgcn.data.packed import PackedMolecules
from molgcn.errors import UserError
from molgcn.screening.descriptors import DescriptorInput
from molgcn.screening.dropout import activate_dropout, seeded
from molgcn.screening.inputs import ModelInputs, components_of
from molgcn.training.inference import blended, common_digits
from molgcn.training.joint_calibration import load_joint_calibration
from molgcn.training.predictor import MoleculePredictor
from molgcn.training.restore import find_checkpoints, load_module, require_features


class Ensemble:
    """Models of the same task, targets, units and features, whose predictions are averaged.

    Args:
        members: trained modules in evaluation mode, on one device. With `dropout_samples` they are changed in place.
        sources: the checkpoint of each member, for messages.
        dropout_samples: the number of passes of each member with its dropout active, each of which counts as a model. 0 means one pass
            without dropout.
        seed: random seed of the dropout.
        calibration: the calibration of the members' mean prediction without dropout, or None.

    Raises:
        UserError: when members differ in their targets or inputs, take other input than SMILES, or have no dropout although
            `dropout_samples` asks for it.
    """

    def __init__(
        self,
        members: Sequence[MoleculePredictor],
        sources: Sequence[Path | str] = (),
        dropout_samples: int = 0,
        seed: int = 0,
        calibration: Calibration | None = None,
    ) -> None:
        self.members = list(members)
        self.dropout_samples = dropout_samples
        self.seed = seed
        self._of_mean = calibration
        sources = list(sources) or [f"member {number}" for number in range(len(self.members))]
        self.features = require_features(self.members[0], Path(sources[0]))
        self.task, self.levels = self.members[0].task, self.members[0].levels
        self.descriptors = DescriptorInput.of(self.members[0])
        self.tree_generators = tuple(self.members[0].config.dataset.tree_generators or ())
        self.standardize = self.members[0].config.dataset.standardize
        sees_bonds = any(member.model.edge_channels is not None for member in self.members)
        self.inputs = replace(ModelInputs.of(self.members[0]), bonds=sees_bonds)
        self.names, self.units = list(self.task.names), list(self.task.units)
        self.components = components_of(self.members[0])
        self.smiles_columns = list(dict.fromkeys(name for member in self.members for name in member.config.dataset.smiles_columns))
        self.trained_on = common_domain([member.trained_on for member in self.members])
        for member, source in zip(self.members[1:], sources[1:], strict=True):
            for what, ours, theirs in (
                ("tasks", self.task.name, member.task.name),
                ("numbers of classes", self.task.num_classes, member.task.num_classes),
                ("targets", self.names, member.target_names),
                ("units", self.units, member.target_units),
                ("targets of atoms and bonds", self.levels, member.levels),
                ("features", self.features, member.features),
                ("predictions", self.task.described, member.task.described),
                ("components", ", ".join(self.components) or "none", ", ".join(components_of(member)) or "none"),
                ("standard forms", self.standardize, member.config.dataset.standardize),
                ("descriptors", self.descriptors, DescriptorInput.of(member)),
                *((f"own features of {of}s", names, member.own_features[of]) for of, names in self.inputs.own_features.items()),
                ("trees", ", ".join(self.tree_generators) or "none", ", ".join(member.config.dataset.tree_generators or ()) or "none"),
                ("columns of predictions", self.task.columns, member.task.columns),
            ):
                if ours != theirs:
                    raise UserError(
                        f"{source} and {sources[0]} differ in their {what}: {theirs} and {ours}. Members of an ensemble predict the same "
                        "targets, in the same units and from the same features; predict with each by itself."
                    )
        if dropout_samples:
            for member, source in zip(self.members, sources, strict=True):
                activate_dropout(member, source)

    @classmethod
    def load(
        cls,
        checkpoints: Sequence[str | Path],
        backend: BackendConfig | None = None,
        device: str = "cpu",
        dropout_samples: int = 0,
        seed: int = 0,
        models: WhichModels = "auto",
    ) -> Ensemble:
        """Load the models of checkpoints.

        Args:
            checkpoints: checkpoint files or folders of runs. The folder of a run of several trainings stands for all of them.
            backend: what computes the layers; None is the default.
            device: where the models compute.
            dropout_samples: the number of passes with dropout; see :class:`Ensemble`.
            seed: random seed of the dropout.
            models: which models the folder of a cross-validation stands for; see :func:`molgcn.training.restore.find_checkpoints`.

        Raises:
            UserError: when a checkpoint cannot be read, or the models do not fit together.
        """
        paths = [file for path in checkpoints for file in find_checkpoints(path, models=models)]
        members = [load_module(path, backend, device) for path in paths]
        return cls(members, paths, dropout_samples, seed, load_joint_calibration(paths, members[0].task))

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
        """The significant digits of each of the P columns of predictions."""
        return common_digits(self.members)

    @torch.no_grad()
    def predict(self, molecules: PackedMolecules, start: int = 0) -> np.ndarray:
        """Predict molecules as one batch, in every pass.

        Args:
            molecules: M molecules.
            start: the number of the first row. It seeds the dropout, which so differs between batches but not between runs.

        Returns:
            [N, M, P], the predictions of every pass; see :func:`molgcn.training.inference.predict_molecules` for their rows.
        """
        device = self.members[0].device
        batch = molecules.batch(slice(None), device=device)
        with seeded(self.seed, start, device) if self.dropout_samples else nullcontext():
            passes = [(member, member(batch).cpu().numpy()) for member in self.members for _ in range(max(self.dropout_samples, 1))]
        return np.stack([blended(member, found, molecules) for member, found in passes])
