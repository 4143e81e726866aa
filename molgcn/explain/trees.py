"""The contributions to predictions that boosted trees make together with the network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from molgcn.blending.blend import tree_features
from molgcn.blending.trees import Trees
from molgcn.data.components import names_of_row
from molgcn.data.descriptors.generators import generated_names
from molgcn.data.packed import PackedMolecules
from molgcn.explain.contributions import Contributions
from molgcn.tasks.regression import Regression
from molgcn.training.predictor import MoleculePredictor

_NEAR = 1e-9  # two values with a smaller relative difference have the slope of the curve at one of them


@dataclass(frozen=True)
class BlendedTrees:
    """The trees of the explained target, and how their predictions join the network's."""

    trees: Trees
    share: float  # the network's share of the prediction
    number: int  # the explained class, with more than two classes
    names: tuple[str, ...]  # the names of the descriptors that the trees take beside the network's
    learned: Callable[[float], float]  # turns a value of the target into what is mixed; the identity for logits
    value: Callable[[float], float]  # turns what is mixed into a value of the target

    @classmethod
    def of(cls, module: MoleculePredictor, target: str, number: int) -> BlendedTrees | None:
        """Return the trees of a target, or None where the network predicts it alone."""
        blend, task, dataset = module.blend, module.task, module.config.dataset
        place = list(task.names).index(target)
        if blend is None or (trees := blend.trees[place]) is None:
            return None
        names = names_of_row(generated_names(dataset.tree_generators or ()), dataset.smiles_columns)
        curves = [lambda value: value] * 2
        for part, statistics in zip(task.parts, task.statistics_of_parts(blend.statistics), strict=True):
            if target in part.names and isinstance(part, Regression):
                curves = _curves(part, statistics, list(part.names).index(target))
        return cls(trees, blend.shares[place], number, tuple(names), *curves)

    def added_to(self, found: Contributions, molecules: PackedMolecules) -> Contributions:
        """Return the contributions to the prediction of network and trees together, from those to the network's prediction of a row.

        Both mix what the network learns, in which contributions add up. Where a transform is not a line, those of the network, and then
        those of both, are scaled by the slope between prediction and baseline.
        """
        share, (own, mean) = self.share, self.trees.contributions(tree_features(molecules), self.number)
        ends = [
            share * self.learned(network) + (1 - share) * trees
            for network, trees in ((found.baseline, mean[0]), (found.prediction, mean[0] + own[0].sum()))
        ]
        slope = _slope(self.value, *ends)
        of_network = slope * share * _slope(self.learned, found.baseline, found.prediction)
        of_trees = slope * (1 - share) * own[0]
        network = np.zeros(len(of_trees))
        network[: len(found.descriptors)] = found.descriptors  # which the trees take first
        baseline, prediction = map(self.value, ends)
        return replace(
            found,
            atoms=of_network * found.atoms,
            bonds=of_network * found.bonds,
            descriptors=of_network * network + of_trees,
            prediction=prediction,
            baseline=baseline,
        )


def _curves(task: Regression, statistics: Sequence[torch.Tensor], place: int) -> list[Callable[[float], float]]:
    """Return the functions from a target's value to what the network learns, and back."""
    mean, std, *curves = (one.double().cpu() for one in statistics)

    def row(value: float) -> torch.Tensor:
        return torch.full((1, len(task.names)), value, dtype=torch.float64)

    return [
        lambda value: float(((task.transforms.forward(row(value), *curves) - mean) / std)[0, place]),
        lambda value: float(task.transforms.inverse(row(value) * std + mean, *curves)[0, place]),
    ]


def _slope(curve: Callable[[float], float], start: float, end: float) -> float:
    if abs(end - start) <= _NEAR * max(abs(start), abs(end)):
        end = start + max(abs(start), 1.0) * 1e-6
    return (curve(end) - curve(start)) / (end - start)
