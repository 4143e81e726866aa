"""A blend: boosted trees for each target, and how much of the network's prediction and of theirs counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor

from molgcn.blending.shares import OF_CLASSES, OF_NUMBERS, mix_of_classes, share_of_classes, share_of_numbers
from molgcn.blending.trees import Trees
from molgcn.data.label_columns import measured
from molgcn.data.packed import PackedMolecules
from molgcn.errors import UserError
from molgcn.files.json_file import read_json, write_json
from molgcn.files.whole_file import write_text
from molgcn.tasks.base import Task
from molgcn.tasks.classes import ClassTask
from molgcn.tasks.regression import Regression

FOLDER, FILE = "trees", "blend.json"


@dataclass(frozen=True)
class Blend:
    """Trees of T targets that predict together with a network.

    Numbers are mixed as the network learns them, after the targets' transforms, and classes as logarithms of probabilities.
    """

    task: Task  # what is predicted
    statistics: Sequence[Tensor]  # the task's statistics of the training part
    trees: Sequence[Trees | None]  # the trees of each target, or None for a target without a known value among the training molecules
    shares: Sequence[float]  # the network's share of each target's prediction, from 0 to 1; the rest is the trees'

    @property
    def trees_alone(self) -> Blend:
        """The same trees without the network. A target without trees keeps the network's prediction."""
        return replace(self, shares=[0.0 if trees else 1.0 for trees in self.trees])

    @property
    def described(self) -> str:
        """The shares of each target, in words."""
        pairs = zip(self.task.names, self.shares, strict=True)
        return ", ".join(f"{name} {share:.0%} network and {1 - share:.0%} trees" for name, share in pairs)

    @classmethod
    def fit(cls, task: Task, statistics: Sequence[Tensor], molecules: PackedMolecules, seed: int, balanced: bool) -> Blend:
        """Fit the trees of every target to its known values among the training molecules. The shares are the expected ones.

        Targets that are bounds are left out. If `balanced`, labels of a class weigh by how rare the class is.
        """
        features, targets = tree_features(molecules), measured(molecules).targets
        weights = np.ones(len(targets)) if molecules.weights is None else molecules.weights[:, 0].astype(np.float64)
        trees: dict[int, Trees | None] = {}
        for part in _parts(task, statistics, np.empty((len(targets), task.num_predictions)), targets):
            for number, column in zip(part.numbers, part.labels.T, strict=True):
                known, classes = ~np.isnan(column), part.task.num_classes
                own = weights[known] * (_rarity(column[known], classes) if balanced and classes else 1)
                trees[number] = Trees.fit(features[known], column[known], classes, own, seed) if known.any() else None
        ordered = [trees[number] for number in range(len(task.names))]
        of_classes = {name for part in task.parts if part.num_classes for name in part.names}
        expected = [OF_CLASSES if name in of_classes else OF_NUMBERS for name in task.names]
        return cls(task, statistics, ordered, [share if one else 1.0 for one, share in zip(ordered, expected, strict=True)])

    def weighed(self, predictions: np.ndarray, molecules: PackedMolecules) -> Blend:
        """Return the blend with the shares that suit M molecules to which the trees were not fitted; the network predicts [M, P]."""
        found, shares = self._predict(molecules), list(self.shares)
        for part in _parts(self.task, self.statistics, predictions, measured(molecules).targets):
            share = share_of_classes if isinstance(part.task, ClassTask) else share_of_numbers
            for number, given, labels in zip(part.numbers, part.learned, part.labels.T, strict=True):
                if (trees := found[number]) is not None:
                    shares[number] = share(given, trees, labels)
        return replace(self, shares=shares)

    def mix(self, predictions: np.ndarray, molecules: PackedMolecules) -> np.ndarray:
        """Return the predictions [M, P] of network and trees together, from those of the network.

        Where a target has several columns, its quantiles move as far as its value, and its standard deviations stay the network's.
        """
        found = self._predict(molecules)
        mixed = []
        for part in _parts(self.task, self.statistics, predictions, np.full((len(predictions), len(self.task.names)), np.nan)):
            shares = np.array([self.shares[number] for number in part.numbers])
            pairs = zip(part.numbers, part.learned, strict=True)
            trees = [given if (own := found[number]) is None else own for number, given in pairs]
            mixed.append(part.mixed(np.stack(trees, axis=1), shares))
        return self.task.together(mixed)

    def _predict(self, molecules: PackedMolecules) -> list[np.ndarray | None]:
        """Return what the trees of each target predict: standardised numbers [M], or probabilities [M, C]."""
        features = tree_features(molecules)
        for one in self.trees:
            if one is not None and one.num_features != features.shape[1]:
                raise UserError(
                    f"The trees take {one.num_features:,} numbers of a molecule, and there are {features.shape[1]:,}: another version of "
                    "RDKit computes others. Install the version that the run was trained with (provenance.json), or train again."
                )
        return [None if one is None else one.predict(features) for one in self.trees]

    def save(self, run: Path) -> None:
        """Write the trees' text and the shares into a run's folder."""
        folder = run / FOLDER
        folder.mkdir(exist_ok=True)
        names = [None if one is None else f"target_{number}.txt" for number, one in enumerate(self.trees)]
        for name, one in zip(names, self.trees, strict=True):
            if name is not None and one is not None:
                write_text(folder / name, one.text)
        write_json(folder / FILE, {"targets": list(self.task.names), "trees": names, "network": list(self.shares)})

    @classmethod
    def load(cls, run: Path, task: Task, statistics: Sequence[Tensor]) -> Blend:
        """Read what :meth:`save` wrote into a run's folder; UserError where a file is missing or damaged."""
        folder = run / FOLDER
        if not (folder / FILE).is_file():
            raise UserError(
                f"{run} was trained with training.blend=trees and has no {FOLDER}/{FILE}, which is written when training ends. Resume the "
                "run, or copy its whole folder."
            )
        saved = read_json(folder / FILE)
        classes = {name: part.num_classes for part in task.parts for name in part.names}
        try:
            if saved["targets"] != list(task.names):
                raise ValueError(f"it is about {saved['targets']}")
            wanted = [None if one is None else f"target_{number}.txt" for number, one in enumerate(saved["trees"])]  # no other file
            texts = [None if name is None else (folder / name).read_text("utf-8") for name in wanted]
            trees = [None if text is None else Trees(text, classes[name]) for name, text in zip(task.names, texts, strict=True)]
            shares = [float(share) for _, share in zip(trees, saved["network"], strict=True)]
            if not all(0 <= share <= 1 for share in shares):
                raise ValueError(f"the shares {shares} are not between 0 and 1")
        except (KeyError, TypeError, ValueError, OSError) as error:
            raise UserError(f"{folder / FILE} cannot be used: {error}. Restore the folder {folder}, or train again.") from error
        return cls(task, statistics, trees, shares)


def tree_features(molecules: PackedMolecules) -> np.ndarray:
    """Return what trees take of each molecule, float32 [M, F]: its descriptors and those that are computed for trees alone."""
    parts = [one for one in (molecules.descriptors, molecules.tree_descriptors) if one is not None]
    if not parts:
        raise UserError("training.blend=trees needs molecules with dataset.tree_generators or descriptors, and these have none.")
    return np.concatenate(parts, axis=1)


@dataclass(frozen=True)
class _Part:
    """A part of a task, whose T targets are all numbers or all classes, at `numbers` among those of the whole task.

    It has its own statistics, columns [M, P] of a network's predictions and true values [M, T], NaN where missing.
    """

    task: Regression | ClassTask
    statistics: Sequence[Tensor]
    predictions: np.ndarray
    targets: np.ndarray
    numbers: list[int]

    @property
    def labels(self) -> np.ndarray:
        """The targets as trees learn them, [M, T]: standardised numbers, or classes."""
        return self.targets if isinstance(self.task, ClassTask) else self._standardised(self.targets)

    @property
    def learned(self) -> list[np.ndarray]:
        """The network's predictions of each target as trees predict it: standardised numbers [M], or probabilities of classes [M, C]."""
        if isinstance(self.task, ClassTask):
            return [np.stack([1 - one, one], axis=1) if one.ndim == 1 else one for one in self.task.by_target(self.predictions)]
        return [*self._standardised(self.task.points(self.predictions)).T]

    def _standardised(self, values: np.ndarray) -> np.ndarray:
        assert isinstance(self.task, Regression)
        mean, std, *curves = (one.double().cpu() for one in self.statistics)
        return ((self.task.transforms.forward(torch.from_numpy(values).double(), *curves) - mean) / std).numpy()

    def mixed(self, trees: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """Mix the network's predictions [M, P] with those of trees, [M, T] or [M, T, C], by the network's shares [T]."""
        task, rows, count = self.task, len(self.predictions), len(self.task.columns[0])
        if isinstance(task, ClassTask):
            return task.joined(mix_of_classes(np.stack(self.learned, axis=1), trees, shares))
        values = sum(task.holds_values[:count])  # the first of a target's columns
        mean, std, *curves = (one.double().cpu() for one in self.statistics)
        transforms, curves = task.transforms.repeated(values), [one.repeat_interleave(values, dim=0) for one in curves]
        columns = torch.from_numpy(self.predictions).double().reshape(rows, len(task.names), count).clone()
        network = transforms.forward(columns[:, :, :values].flatten(1), *curves).reshape(rows, len(task.names), values)
        moves = torch.from_numpy(1 - shares) * (torch.from_numpy(trees) * std + mean - network[:, :, 0])
        columns[:, :, :values] = transforms.inverse((network + moves[:, :, None]).flatten(1), *curves).reshape(network.shape)
        return columns.flatten(1).numpy()


def _parts(task: Task, statistics: Sequence[Tensor], predictions: np.ndarray, targets: np.ndarray) -> list[_Part]:
    names = list(task.names)
    return [
        _Part(cast(Regression | ClassTask, part), own, given, true, [names.index(name) for name in part.names])
        for (part, given, true), own in zip(task.of_parts(predictions, targets), task.statistics_of_parts(statistics), strict=True)
    ]


def _rarity(labels: np.ndarray, num_classes: int) -> np.ndarray:
    """Return a weight for each label [M], the inverse of its class's count; the mean is 1."""
    classes = labels.astype(np.int64)
    weights = 1 / np.bincount(classes, minlength=num_classes)[classes]
    return weights / weights.mean()
