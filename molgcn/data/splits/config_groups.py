"""Groups of molecules that a configuration's split keeps in one part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from molgcn.data.config import DatasetConfig
from molgcn.data.identity import first_copies
from molgcn.data.packed import PackedMolecules
from molgcn.data.sources.base import Source
from molgcn.data.splits.butina import butina_groups
from molgcn.data.splits.column_groups import column_groups
from molgcn.data.splits.groups import join_groups
from molgcn.data.splits.kmeans import kmeans_groups
from molgcn.data.splits.scaffold import scaffold_groups
from molgcn.errors import UserError

KINDS = {"scaffold": "scaffolds", "butina": "clusters", "kmeans": "clusters", "group": "groups"}  # names of the groups in messages


def groups_of(molecules: PackedMolecules, source: Source, config: DatasetConfig) -> np.ndarray | None:
    """Return the group of each molecule, int64 [M], equal for molecules that stay in one part, or None where no molecules do.

    Groups are the copies of a molecule (`dataset.group_duplicates`), or the scaffolds, clusters or groups of `dataset.split`, which are
    joined where they share a copy.

    Args:
        molecules: M molecules with SMILES and hashes.
        source: the source of the molecules.
        config: configuration of the data set and its split.

    Raises:
        UserError: when a column is missing, or there are too many molecules for the clustering.
    """
    assert molecules.hashes is not None
    copies = first_copies(molecules.hashes) if config.group_duplicates else None
    labels = _labels(molecules, source, config)
    return copies if labels is None else join_groups(labels, copies)


def _labels(molecules: PackedMolecules, source: Source, config: DatasetConfig) -> np.ndarray | None:
    assert molecules.smiles is not None
    if config.split == "scaffold":
        return scaffold_groups(molecules.smiles, config.num_workers)
    if config.split == "butina":
        return butina_groups(molecules.smiles, config.split_cutoff, config.num_workers)
    if config.split == "kmeans":
        return kmeans_groups(molecules.smiles, config.split_clusters, config.split_seed, config.num_workers)
    return column_groups(column_cells(molecules, source, config), str(config.split_column)) if config.split == "group" else None


def column_cells(molecules: PackedMolecules, source: Source, config: DatasetConfig) -> list[str]:
    """Return the text of `dataset.split_column` for each molecule, see :func:`whole_column`."""
    cells = whole_column(source, config)
    return [cells[row] for row in molecules.rows.tolist()]


def whole_column(source: Source, config: DatasetConfig) -> Sequence[str]:
    """Return the text of `dataset.split_column`, with one entry for each row of the source.

    Raises:
        UserError: when the source has no columns, or the key or the column is missing.
    """
    if source.column is None or config.split_column is None:
        missing = f"{source.title} has no columns" if source.column is None else "dataset.split_column is not set"
        raise UserError(f"split={config.split} needs a CSV file and dataset.split_column=<column>, but {missing}.")
    return source.column(config.split_column)
