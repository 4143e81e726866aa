"""Makes the split that a configuration names: drawn, or read from a column, a file or the source."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from molgcn.data.config import FOLDS, DatasetConfig
from molgcn.data.identity import first_copies
from molgcn.data.levels import Levels
from molgcn.data.packed import PackedMolecules
from molgcn.data.sources.base import Source
from molgcn.data.splits.drawn import random_split, scaffold_split
from molgcn.data.splits.given import column_split, load_splits, rows_to_split
from molgcn.data.splits.groups import butina_groups, column_groups, join_groups, kmeans_groups, scaffold_groups
from molgcn.data.splits.ordered import column_times, kennard_stone_ranks, ordered_split, report_times
from molgcn.data.splits.parts import PARTS, Split, are_fractions, split_sizes
from molgcn.data.splits.stratified import fold_split, strata_of, stratified_split
from molgcn.errors import UserError, listed, nearest, require

KINDS = {"scaffold": "scaffolds", "butina": "clusters", "kmeans": "clusters", "group": "groups"}  # names of the groups in messages


def make_split(molecules: PackedMolecules, source: Source, config: DatasetConfig) -> Split:
    """Make the split of a configuration.

    Returns:
        Sorted int64 positions in `molecules` for "train", "val" and "test". A split file may also name "calibration".
    """
    if config.split == "file":
        found = load_splits(config.split_files)
        if not found:
            raise UserError("dataset.split=file needs dataset.split_file=<file.json>, for example the splits.json of a run.")
        if len(found) > 1 and config.repeat is None:
            raise UserError(
                "Several splits in dataset.split_file= are a run of several trainings, `python train.py`. Elsewhere name one of them, as "
                "in dataset.repeat=0."
            )
        place = config.repeat or 0
        require(
            place < len(found), "dataset.repeat", place, f"a number from 0 to {len(found) - 1}, one of the splits of dataset.split_file"
        )
        name, split = found[place]
        return rows_to_split(split, molecules, name, source.title)
    if config.split == "column":
        return column_split(_whole_column(source, config), str(config.split_column), molecules.rows)
    if config.split == "benchmark":
        if source.benchmark is None:
            raise UserError(f"{source.title} has no benchmark split of its own. Use split=random, scaffold, column or file.")
        return rows_to_split(source.benchmark(), molecules, f"{source.title}'s benchmark", source.title)
    if config.split == "cv":
        return _draw_fold(molecules, source, config)
    if molecules.files:
        return _split_files(molecules, source, config)
    return draw_split(molecules, source, config, config.split_fractions)


def draw_split(molecules: PackedMolecules, source: Source, config: DatasetConfig, fractions: Sequence[float]) -> Split:
    """Draw a split by `fractions`, see :func:`make_split` and :func:`~molgcn.data.splits.parts.split_sizes`."""
    groups, seed = groups_of(molecules, source, config), config.split_seed + (config.repeat or 0)
    if config.split == "scaffold":
        assert groups is not None
        return scaffold_split(groups, fractions, seed)
    if config.split == "stratified":
        return stratified_split(strata_of(molecules.targets[:, _target(molecules, config)]), fractions, seed, groups)
    if config.split == "time":
        cells, column = _column_cells(molecules, source, config), str(config.split_column)
        times = column_times(cells, column, molecules.rows)
        split = ordered_split(times, fractions, groups, newest=True, kind="times")
        report_times(split, times, cells, column)
        return split
    if config.split == "kennard_stone":
        assert molecules.smiles is not None
        first, place = np.unique(np.arange(len(molecules)) if groups is None else groups, return_inverse=True)  # first of each group
        return ordered_split(kennard_stone_ranks(molecules.smiles.take(first), config.num_workers)[place], fractions)
    return random_split(len(molecules), fractions, seed, groups, KINDS.get(config.split, "groups of copies"))


def _draw_fold(molecules: PackedMolecules, source: Source, config: DatasetConfig) -> Split:
    if config.fold is None:
        raise UserError("dataset.split=cv is a run of several trainings, `python train.py`. Elsewhere name one fold, as in dataset.fold=0.")
    count, by = len(molecules), replace(config, split=config.cv_by)
    groups = groups_of(molecules, source, by)
    strata = strata_of(molecules.targets[:, _target(molecules, by)]) if by.split == "stratified" else np.zeros(count, np.int64)
    train, validation, _ = split_sizes(count, config.split_fractions)
    seed, share = config.split_seed + (config.repeat or 0), validation / (train + validation)
    return fold_split(np.arange(count) if groups is None else groups, strata, config.folds or FOLDS, config.fold, share, seed)


def _target(molecules: PackedMolecules, config: DatasetConfig) -> int:
    names = molecules.target_names[: Levels.of(molecules).molecule]
    if not names:
        raise UserError(
            "dataset.split=stratified stratifies by a target of molecules, and all targets are of atoms or bonds. Use dataset.split=random."
        )
    if config.split_column is None and len(names) > 1:
        raise UserError(f"dataset.split=stratified needs one target to stratify by. Name it with dataset.split_column=: {listed(names)}.")
    name = config.split_column or names[0]
    if name not in names:
        raise UserError(f"dataset.split_column={name} is not a target, by which split=stratified could stratify.{nearest(name, names)}")
    return names.index(name)


def groups_of(molecules: PackedMolecules, source: Source, config: DatasetConfig) -> np.ndarray | None:
    """Return the group of each molecule, int64 [M], equal for molecules that stay in one part, or None where no molecules do.

    Groups are the copies of a molecule (`dataset.group_duplicates`), or the scaffolds, clusters or groups of `dataset.split`, which are
    joined where they share a copy.
    """
    assert molecules.hashes is not None and molecules.smiles is not None
    copies = first_copies(molecules.hashes) if config.group_duplicates else None
    if config.split == "scaffold":
        labels = scaffold_groups(molecules.smiles, config.num_workers)
    elif config.split == "butina":
        labels = butina_groups(molecules.smiles, config.split_cutoff, config.num_workers)
    elif config.split == "kmeans":
        labels = kmeans_groups(molecules.smiles, config.split_clusters, config.split_seed, config.num_workers)
    elif config.split == "group":
        labels = column_groups(_column_cells(molecules, source, config), str(config.split_column))
    else:
        return copies
    return join_groups(labels, copies)


def _column_cells(molecules: PackedMolecules, source: Source, config: DatasetConfig) -> list[str]:
    """Return the text of `dataset.split_column` for each molecule."""
    cells = _whole_column(source, config)
    return [cells[row] for row in molecules.rows.tolist()]


def _whole_column(source: Source, config: DatasetConfig) -> Sequence[str]:
    """Return the text of `dataset.split_column` for each row of the source."""
    if source.column is None or config.split_column is None:
        missing = f"{source.title} has no columns" if source.column is None else "dataset.split_column is not set"
        raise UserError(f"dataset.split={config.split} needs a CSV file and dataset.split_column=<column>, but {missing}.")
    return source.column(config.split_column)


def _split_files(molecules: PackedMolecules, source: Source, config: DatasetConfig) -> Split:
    """Split a set by the files `dataset.path`, `val_path` and `test_path`. A part without a file is drawn from `path`."""
    parts = list(config.files)
    number = np.searchsorted([start for _, start in molecules.files], molecules.rows, side="right") - 1
    split = dict.fromkeys(PARTS, np.array([], np.int64)) | {part: np.flatnonzero(number == place) for place, part in enumerate(parts)}
    for (name, _), part in zip(molecules.files, parts, strict=True):
        if len(split[part]) == 0:
            raise UserError(f"No molecule of {name}, the file of the part {part}, is in the set. Correct its rows, or use a larger subset.")
    wanted = config.split_fractions
    fractions = [0.0 if part in parts[1:] else number for part, number in zip(PARTS, wanted, strict=True)]
    if are_fractions(wanted) and any(fractions):
        fractions = [number / sum(fractions) for number in fractions]
    own = split["train"]
    if any(fractions[1:]):
        drawn = draw_split(molecules[own], source, config, fractions)
        split |= {part: own[drawn[part]] for part in PARTS if part not in parts[1:]}
    return split
