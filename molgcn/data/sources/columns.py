"""Reads the columns of a table, or the properties of an SDF's records, that a configuration names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from molgcn.data.config import DatasetConfig
from molgcn.data.featurize import Kind
from molgcn.data.sources.base import RawMolecules
from molgcn.data.tables import Columns
from molgcn.data.target_columns import read_targets, read_weights


def named_columns(targets: Sequence[str], config: DatasetConfig) -> Mapping[str, Sequence[str]]:
    """Return the names of the columns to read, by the keys of `dataset` that name them."""
    return {"targets": targets, "descriptors": config.descriptors or (), "weights": [config.weights] if config.weights else ()}


def molecules_of(
    items: Sequence[str], columns: Columns, targets: Sequence[str], config: DatasetConfig, kind: Kind = "smiles"
) -> RawMolecules:
    """Return M molecules with the targets, weights and descriptors in their columns.

    Args:
        items: M SMILES or mol blocks.
        columns: the text of the columns of :func:`named_columns`.
        targets: names of the target columns.
        config: configuration of the data set, which names the other columns.
        kind: what the items are.

    Raises:
        UserError: when a cell is not valid, naming its row.
    """
    values, bounds = read_targets(columns, targets, config)
    weights = read_weights(columns, config.weights) if config.weights else None
    given = np.stack([columns.numbers(name) for name in config.descriptors], axis=1) if config.descriptors else None
    return RawMolecules(items, np.arange(len(items)), values, kind, bounds=bounds, weights=weights, descriptors=given)
