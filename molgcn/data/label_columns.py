"""The matrix of labels of a set: the targets of each molecule, followed by bounds and a weight where the set has either.

Since it is one matrix, gathering a batch copies rows of one array, which is only as wide as the set needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import numpy as np

from molgcn.data.levels import Rows
from molgcn.data.molecule_set import MoleculeSet
from molgcn.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

_Set = TypeVar("_Set", bound=MoleculeSet)


class LabelColumns(NamedTuple):
    """The labels of B molecules with T targets, split into their parts."""

    targets: Tensor  # float [B, T], NaN where missing
    # float [B, T], -1 where the true value is below the target, 1 where it is above, 0 where it is the target. None for a set without
    # bounds and weights
    bounds: Tensor | None = None
    weights: Tensor | None = None  # float [B, 1], the weight of each molecule. None for a set without bounds and weights

    @property
    def exact(self) -> Tensor:
        """The targets with NaN where only a bound is known, by which predictions are measured."""
        return self.targets if self.bounds is None else self.targets.where(self.bounds == 0, math.nan)


def split_labels(labels: Tensor, num_targets: int) -> LabelColumns:
    """Split labels [B, T], or [B, 2 T + 1] of a set with bounds or weights, into their parts."""
    if labels.shape[1] == num_targets:
        return LabelColumns(labels)
    return LabelColumns(*labels.split([num_targets, num_targets, 1], dim=1))


def labels_of(labels: Tensor, num_targets: int, places: Sequence[int]) -> Tensor:
    """Return the labels of the targets at `places`, by operators that a CUDA graph can capture."""
    import torch  # imported here, since worker processes that read molecules do not need it

    return torch.stack([labels[:, column] for column in columns_of(labels.shape[1], num_targets, places)], dim=1)


def columns_of(width: int, num_targets: int, places: Sequence[int]) -> list[int]:
    """Return the columns of the targets at `places` in a matrix of labels [B, width], with those of their bounds and the weight."""
    return [*places, *(num_targets + place for place in places), -1] if width > num_targets else [*places]


def metric_labels(molecules: MoleculeSet) -> np.ndarray:
    """Return the labels by which predictions are measured, float [M, T], or [M, 2 T + 1] of a set with bounds, with equal weights."""
    if molecules.bounds is None:
        return Rows.of(molecules).targets
    return np.concatenate([molecules.targets, molecules.bounds, np.ones((len(molecules), 1))], axis=1, dtype=np.float64)


def with_labels(molecules: _Set, bounds: np.ndarray | None, weights: np.ndarray | None) -> _Set:
    """Return a set with the given bounds ([M, T] or None) and weights ([M] or None) in place of its own.

    None stands for no bounds, and for equal weights.
    """
    bounds, weights = (
        None if one is None else np.ascontiguousarray(one, np.float32).reshape(len(molecules), -1) for one in (bounds, weights)
    )
    return replace(molecules, bounds=bounds, weights=weights)


def with_targets(molecules: _Set, places: Sequence[int]) -> _Set:
    """Return a set with only the targets at `places`."""
    names, units = (tuple(values[place] for place in places) for values in (molecules.target_names, molecules.target_units))
    bounds = None if molecules.bounds is None else np.ascontiguousarray(molecules.bounds[:, places])
    targets = np.ascontiguousarray(molecules.targets[:, places])
    return replace(molecules, targets=targets, bounds=bounds, target_names=names, target_units=units)


def measured(molecules: _Set) -> _Set:
    """Return a set without bounds, whose targets are NaN where only a bound is known. Predictions are measured by these."""
    if molecules.bounds is None:
        return molecules
    exact = np.where(molecules.bounds == 0, molecules.targets, np.nan).astype(molecules.targets.dtype)
    return replace(molecules, targets=exact, bounds=None)


def weighed(molecules: _Set, train: np.ndarray) -> _Set:
    """Return the set with its weights divided by their mean over the training part. A set without weights is returned as it is."""
    if molecules.weights is None:
        return molecules
    mean = molecules.weights[train].mean(dtype=np.float64)
    if mean == 0:
        raise UserError(
            f"All {len(train):,} molecules of the training part have the weight 0 in the column of dataset.weights (the first is row "
            f"{molecules.rows[train[0]]}), so that nothing is learned. Give some of them more, or leave dataset.weights out."
        )
    return with_labels(molecules, molecules.bounds, molecules.weights / mean)
