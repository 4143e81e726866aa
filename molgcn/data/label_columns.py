"""What batches hold of each molecule to learn: its targets, and behind them bounds and a weight where a set has either.

One matrix, so that whatever gathers batches copies rows of one array, as wide as the set needs it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor

    from molgcn.data.packed import PackedMolecules


class LabelColumns(NamedTuple):
    """The columns of T targets.

    Attributes:
        targets: [B, T], NaN where missing.
        bounds: [B, T], -1 where the true value is below the target, 1 where it is above, 0 where it is the target; None for a plain set.
        weights: [B, 1], how much each molecule weighs; None for a plain set.
    """

    targets: Tensor
    bounds: Tensor | None = None
    weights: Tensor | None = None

    @property
    def exact(self) -> Tensor:
        """The targets, NaN where there is only a bound: what predictions are measured by."""
        return self.targets if self.bounds is None else self.targets.where(self.bounds == 0, math.nan)


def split_labels(labels: Tensor, num_targets: int) -> LabelColumns:
    """Return the columns of labels [B, T], or [B, 2 T + 1] of a set with bounds or weights."""
    if labels.shape[1] == num_targets:
        return LabelColumns(labels)
    return LabelColumns(*labels.split([num_targets, num_targets, 1], dim=1))


def labels_of(labels: Tensor, num_targets: int, places: Sequence[int]) -> Tensor:
    """Return the labels of some of the targets, at `places` among all, in operators that a CUDA graph can capture."""
    import torch  # worker processes that read molecules do without it

    wide = labels.shape[1] > num_targets
    columns = [*places, *(num_targets + place for place in places), -1] if wide else places
    return torch.stack([labels[:, column] for column in columns], dim=1)


def join_labels(molecules: PackedMolecules) -> np.ndarray:
    """Return the labels of a set, in the targets' dtype: the targets themselves where there is neither a bound nor a weight."""
    targets, bounds, weights = molecules.targets, molecules.bounds, molecules.weights
    if bounds is None and weights is None:
        return targets
    bounds = np.zeros_like(targets) if bounds is None else bounds
    weights = np.ones_like(targets[:, :1]) if weights is None else weights
    return np.ascontiguousarray(np.concatenate([targets, bounds, weights], axis=1, dtype=targets.dtype))


def with_labels(molecules: PackedMolecules, bounds: np.ndarray | None, weights: np.ndarray | None) -> PackedMolecules:
    """Return a set with bounds [M, T] or None, and weights [M] or None, in place of its own."""
    bounds, weights = (
        None if one is None else np.ascontiguousarray(one, np.float32).reshape(len(molecules), -1) for one in (bounds, weights)
    )
    return replace(molecules, bounds=bounds, weights=weights)


def with_targets(molecules: PackedMolecules, places: Sequence[int]) -> PackedMolecules:
    """Return a set with some of its targets, at `places` among all."""
    names, units = (tuple(values[place] for place in places) for values in (molecules.target_names, molecules.target_units))
    bounds = None if molecules.bounds is None else np.ascontiguousarray(molecules.bounds[:, places])
    targets = np.ascontiguousarray(molecules.targets[:, places])
    return replace(molecules, targets=targets, bounds=bounds, target_names=names, target_units=units)


def measured(molecules: PackedMolecules) -> PackedMolecules:
    """Return a set with exact targets alone, by which predictions are measured: missing where there is only a bound."""
    if molecules.bounds is None:
        return molecules
    exact = np.where(molecules.bounds == 0, molecules.targets, np.nan).astype(molecules.targets.dtype)
    return replace(molecules, targets=exact, bounds=None)
