"""One or several trained models that predict together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from molgcn.config import BackendConfig
from molgcn.data.applicability import common_domain
from molgcn.data.packed import PackedMolecules
from molgcn.errors import UserError
from molgcn.screening.descriptors import DescriptorInput
from molgcn.training.regressor import MoleculeRegressor
from molgcn.training.restore import find_checkpoint, load_regressor, require_features


class Ensemble:
    """Models of the same task, targets, units and features: their mean and standard deviation.

    Args:
        members: trained modules in evaluation mode, on one device.
        sources: where each came from, for messages.

    Raises:
        UserError: when they do not predict the same from the same, or take other input than SMILES.
    """

    def __init__(self, members: Sequence[MoleculeRegressor], sources: Sequence[Path | str] = ()) -> None:
        self.members = list(members)
        sources = list(sources) or [f"member {number}" for number in range(len(self.members))]
        self.features = require_features(self.members[0], Path(sources[0]))
        self.task = self.members[0].task
        self.descriptors = DescriptorInput.of(self.members[0])
        self.standardize = self.members[0].config.dataset.standardize
        self.sees_bonds = any(member.model.edge_channels is not None for member in self.members)
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
                ("features", self.features, member.features),
                ("components", ", ".join(self.components) or "none", ", ".join(components_of(member)) or "none"),
                ("standard forms", self.standardize, member.config.dataset.standardize),
                ("descriptors", self.descriptors, DescriptorInput.of(member)),
            ):
                if ours != theirs:
                    raise UserError(
                        f"{source} and {sources[0]} differ in their {what}: {theirs} and {ours}. Members of an ensemble predict the same "
                        "targets, in the same units and from the same features; predict with each by itself."
                    )

    @classmethod
    def load(cls, checkpoints: Sequence[str | Path], backend: BackendConfig | None = None, device: str = "cpu") -> Ensemble:
        """The models of checkpoint files or runs' folders.

        Raises:
            UserError: see :func:`molgcn.training.restore.load_regressor`.
        """
        paths = [find_checkpoint(path) for path in checkpoints]
        return cls([load_regressor(path, backend, device) for path in paths], paths)

    @property
    def digits(self) -> list[int]:
        """Significant digits of each column of predictions."""
        return [max(digits) for digits in zip(*(member.target_digits for member in self.members), strict=True)]

    @torch.no_grad()
    def predict(self, molecules: PackedMolecules) -> np.ndarray:
        """Every member's predictions of the molecules, as one batch: float64 [members, M, P]."""
        batch = molecules.batch(slice(None), device=self.members[0].device)
        return torch.stack([member(batch) for member in self.members]).cpu().numpy()


def components_of(module: MoleculeRegressor) -> list[str]:
    """Return the columns of the several molecules of a row that a model was trained on; none where a row is one."""
    columns = module.config.dataset.smiles_columns
    return columns if len(columns) > 1 else []


def mean_and_deviation(predictions: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Mean [M, P] over members of float64 [members, M, P] and, of several, their sample standard deviation (n - 1) [M, P]."""
    return predictions.mean(axis=0), predictions.std(axis=0, ddof=1) if len(predictions) > 1 else None
