"""Makes the split that a configuration names: drawn, or read from a column, a file or the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from molgcn.data.config import FOLDS, DatasetConfig
from molgcn.data.packed import PackedMolecules
from molgcn.data.sources.base import Source
from molgcn.data.splits.column import column_split
from molgcn.data.splits.column_times import column_times, report_times
from molgcn.data.splits.config_groups import KINDS, column_cells, groups_of, whole_column
from molgcn.data.splits.files import split_files
from molgcn.data.splits.folds import fold_split
from molgcn.data.splits.kennard_stone import kennard_stone_ranks
from molgcn.data.splits.ordered import ordered_split
from molgcn.data.splits.parts import Split
from molgcn.data.splits.random import random_split
from molgcn.data.splits.rows import rows_to_split
from molgcn.data.splits.saved import load_split
from molgcn.data.splits.scaffold import scaffold_split
from molgcn.data.splits.sizes import split_sizes
from molgcn.data.splits.stratified import strata_of, stratified_split
from molgcn.errors import UserError, listed, nearest


def make_split(molecules: PackedMolecules, source: Source, config: DatasetConfig) -> Split:
    """Make the split of a configuration.

    Args:
        molecules: the set, with SMILES and hashes.
        source: the source of the molecules.
        config: configuration of the data set and its split.

    Returns:
        Sorted int64 positions in `molecules` for "train", "val" and "test". A split file may also name "calibration".

    Raises:
        UserError: when the source does not have what the split needs, or a part that is wanted would be empty.
    """
    if config.split == "file":
        if config.split_file is None:
            raise UserError("split=file needs dataset.split_file=<file.json>, for example the splits.json of a run.")
        return rows_to_split(load_split(config.split_file), molecules, config.split_file, source.title)
    if config.split == "column":
        return column_split(whole_column(source, config), str(config.split_column), molecules.rows)
    if config.split == "benchmark":
        if source.benchmark is None:
            raise UserError(f"{source.title} has no benchmark split of its own. Use split=random, scaffold, column or file.")
        return rows_to_split(source.benchmark(), molecules, f"{source.title}'s benchmark", source.title)
    if config.split == "cv":
        return draw_fold(molecules, source, config)
    if molecules.files:
        return split_files(molecules, config, lambda own, fractions: draw_split(own, source, config, fractions))
    return draw_split(molecules, source, config, config.split_fractions)


def draw_split(molecules: PackedMolecules, source: Source, config: DatasetConfig, fractions: Sequence[float]) -> Split:
    """Draw a split by `fractions`, see :func:`make_split` and :func:`~molgcn.data.splits.sizes.split_sizes`."""
    groups, seed = groups_of(molecules, source, config), config.split_seed + (config.repeat or 0)
    if config.split == "scaffold":
        assert groups is not None
        return scaffold_split(groups, fractions, seed)
    if config.split == "stratified":
        return stratified_split(strata_of(molecules.targets[:, _target(molecules, config)]), fractions, seed, groups)
    if config.split == "time":
        cells, column = column_cells(molecules, source, config), str(config.split_column)
        times = column_times(cells, column, molecules.rows)
        split = ordered_split(times, fractions, groups, newest=True, kind="times")
        report_times(split, times, cells, column)
        return split
    if config.split == "kennard_stone":
        assert molecules.smiles is not None
        first, place = np.unique(np.arange(len(molecules)) if groups is None else groups, return_inverse=True)  # first of each group
        return ordered_split(kennard_stone_ranks(molecules.smiles.take(first), config.num_workers)[place], fractions)
    return random_split(len(molecules), fractions, seed, groups, KINDS.get(config.split, "groups of copies"))


def draw_fold(molecules: PackedMolecules, source: Source, config: DatasetConfig) -> Split:
    """Make the split of cross-validation that holds out `dataset.fold`, see :func:`make_split`.

    Args:
        molecules: the set.
        source: where its molecules come from.
        config: names the fold, the folds and how to draw them.

    Raises:
        UserError: if no fold is named, or the set cannot be split so.
    """
    if config.fold is None:
        raise UserError("dataset.split=cv is a run of several trainings, `python train.py`. Elsewhere name one fold, as in dataset.fold=0.")
    count, by = len(molecules), replace(config, split=config.cv_by)
    groups = groups_of(molecules, source, by)
    strata = strata_of(molecules.targets[:, _target(molecules, by)]) if by.split == "stratified" else np.zeros(count, np.int64)
    train, validation, _ = split_sizes(count, config.split_fractions)
    seed, share = config.split_seed + (config.repeat or 0), validation / (train + validation)
    return fold_split(np.arange(count) if groups is None else groups, strata, config.folds or FOLDS, config.fold, share, seed)


def _target(molecules: PackedMolecules, config: DatasetConfig) -> int:
    """Return the position of the target by which to stratify."""
    names = molecules.target_names
    if config.split_column is None and len(names) > 1:
        raise UserError(f"split=stratified needs one target to stratify by. Name it with dataset.split_column=: {listed(names)}.")
    name = config.split_column or names[0]
    if name not in names:
        raise UserError(f"dataset.split_column={name} is not a target, by which split=stratified could stratify.{nearest(name, names)}")
    return names.index(name)
