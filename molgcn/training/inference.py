"""Predict packed molecules by one model, or by several together, without a Trainer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch

from molgcn.calibration.calibration import Calibration
from molgcn.data.label_columns import measured, metric_labels
from molgcn.data.layout import BatchLayout, lay_out
from molgcn.data.levels import Rows
from molgcn.data.loader import PackedLoader
from molgcn.data.packed import PackedMolecules
from molgcn.tasks.base import Task

if TYPE_CHECKING:
    from molgcn.data.load import LoadedDataset
    from molgcn.training.predictor import MoleculePredictor


Of = Literal["all", "network", "trees"]


@torch.no_grad()
def predict_molecules(module: MoleculePredictor, molecules: PackedMolecules, batch_size: int, of: Of = "all") -> np.ndarray:
    """Return the predictions of M molecules, float64 [M, P] in their order, computed on the module's device; see :func:`blended` for `of`.

    With targets of atoms or bonds they are [R, P] in the order of :class:`molgcn.data.levels.Rows`. The module is left in evaluation mode.
    """
    module.eval()
    rows = Rows(molecules, module.levels)
    predictions = np.empty((len(rows), module.task.num_predictions))
    model = module.model
    layout = BatchLayout(bonds=model.edge_channels is not None, rwse=model.rwse, bond_rw=model.bond_rw)
    for batch in PackedLoader(lay_out(molecules, layout), batch_size, shuffle=False):
        indices = batch.indices.numpy()
        predictions[rows.at(indices)] = module(module.ready(batch)).cpu().numpy()
    return blended(module, predictions, molecules, of)


def blended(module: MoleculePredictor, predictions: np.ndarray, molecules: PackedMolecules, of: Of = "all") -> np.ndarray:
    """Return what a network, with predictions [M, P] of M molecules, and the trees of its run predict together, or alone as `of` says."""
    if module.blend is None or of == "network":
        return predictions
    return (module.blend.trees_alone if of == "trees" else module.blend).mix(predictions, molecules)


def combined(task: Task, passes: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
    """Combine the predictions [N, M, P] of N passes into [M, P].

    The sample standard deviation (with N - 1) of each column, [M, P], follows. It is None for a single pass.
    """
    return (task.combine(passes), passes.std(axis=0, ddof=1)) if len(passes) > 1 else (passes[0], None)


def common_digits(members: Sequence[MoleculePredictor]) -> list[int]:
    """Return the significant digits of each of the P columns of predictions that suffice for every member."""
    return [max(digits) for digits in zip(*(member.target_digits for member in members), strict=True)]


@dataclass(frozen=True)
class PartPredictions:
    """What models predict of the M molecules of a part."""

    molecules: PackedMolecules
    values: np.ndarray  # float64 [M, P], the predictions
    # float64 [M, P], the standard deviations over models, NaN where a single model predicts a molecule. None where no molecule has several
    # models
    deviation: np.ndarray | None
    passes: np.ndarray  # float64 [N, M, P], the predictions of each model, NaN for molecules that it does not predict
    # the calibrations of the predictions, with the indices of the molecules that each is of
    calibrations: Sequence[tuple[np.ndarray, Calibration]] = ()

    @property
    def targets(self) -> np.ndarray:
        """The true values [M, T], NaN where there is none or only a bound."""
        return self.rows.targets

    @cached_property
    def rows(self) -> Rows:
        return Rows.of(measured(self.molecules))

    @property
    def labels(self) -> np.ndarray:
        """The true values with their bounds; see :func:`molgcn.data.label_columns.metric_labels`."""
        return metric_labels(self.molecules)

    @property
    def molecule_of_row(self) -> np.ndarray | None:
        """The molecule of each row where atoms or bonds have targets, int64 [M], or None."""
        return self.rows.molecule if self.rows.levels else None


@dataclass(frozen=True)
class Models:
    """The model of a training, or those of a run of several, which predict together."""

    modules: Sequence[MoleculePredictor]  # the N trained modules
    data: Sequence[LoadedDataset]  # the molecules of each module's run with their split; all hold the same set of molecules
    calibration: Calibration | None = None  # the calibration of what all models predict together, or None
    of: Of = "all"  # what predicts; see :func:`blended`
    # the calibrations of what some of the models predict together, by the numbers of these models. Models of several splits have them,
    # since each molecule of a part is predicted by some
    of_some: Mapping[tuple[int, ...], Calibration] = field(default_factory=dict)
    batch_size: int | None = None  # molecules per batch, or None for that of each module's training
    _predicted: dict[str, PartPredictions] = field(default_factory=dict, repr=False)

    @property
    def task(self) -> Task:
        return self.modules[0].task

    @property
    def blended(self) -> bool:
        """Whether trees predict together with a network."""
        return any(module.blend is not None for module in self.modules)

    def only(self, of: Of) -> Models:
        """Return the networks or the trees alone."""
        return replace(self, of=of, _predicted={})

    def predicted(self, part: str) -> PartPredictions:
        """Predict each molecule of a part by the models whose split has it there, in the order of the set; later calls remember."""
        if part not in self._predicted:
            self._predicted[part] = self._predict(part)
        return self._predicted[part]

    def _predict(self, part: str) -> PartPredictions:
        found = np.unique(np.concatenate([one.splits[part] for one in self.data]))
        first = self.data[0]
        alike = len(found) == len(first.splits[part])
        found = first.splits[part] if alike else found
        molecules, order = first.part(part) if alike else first.molecules[found], np.argsort(found)
        rows = Rows.of(molecules)
        known = np.zeros((len(self.modules), len(rows)), bool)
        passes = np.full((*known.shape, self.task.num_predictions), np.nan)
        for number, (module, one) in enumerate(zip(self.modules, self.data, strict=True)):
            places = rows.at(order[np.searchsorted(found, one.splits[part], sorter=order)])
            batch_size = self.batch_size or module.config.dataset.batch_size
            passes[number, places] = predict_molecules(module, one.part(part), batch_size, self.of)
            known[number, places] = True
        values, deviation = np.full(passes.shape[1:], np.nan), np.full(passes.shape[1:], np.nan)
        calibrations = [] if self.calibration is None else [(np.arange(len(rows)), self.calibration)]
        by_models, group = np.unique(known, axis=1, return_inverse=True)
        for number, models in enumerate(by_models.T):
            chosen = np.flatnonzero(group.reshape(-1) == number)
            values[chosen], spread = combined(self.task, passes[np.ix_(models, chosen)])
            if spread is not None:
                deviation[chosen] = spread
            if own := self.of_some.get(tuple(np.flatnonzero(models).tolist())):
                calibrations.append((chosen, own))
        several = known.sum(axis=0).max(initial=0) > 1
        return PartPredictions(molecules, values, deviation if several else None, passes, calibrations)
