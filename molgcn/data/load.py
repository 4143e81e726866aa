"""From a dataset configuration to packed molecules and a split."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import cast

import numpy as np

from molgcn.data.applicability import Contents, contents_of, describe_unlike
from molgcn.data.cache import file_hash, identity_hash, load_or_pack
from molgcn.data.config import FOLDS, DatasetConfig
from molgcn.data.descriptors.attach import with_descriptors
from molgcn.data.descriptors.given import with_given
from molgcn.data.duplicates import MERGES, merge_repeats, refuse_repeats, report_copies, report_repeats
from molgcn.data.featurize import OnError, featurize_items
from molgcn.data.featurizers import get_featurizer
from molgcn.data.identity import first_copies, with_hashes
from molgcn.data.label_columns import with_labels
from molgcn.data.packed import PackedMolecules, SkippedRow
from molgcn.data.scaffolds import join_scaffolds, murcko_scaffolds
from molgcn.data.sources import SOURCES
from molgcn.data.sources.base import RawMolecules, Source
from molgcn.data.splits.column import column_split
from molgcn.data.splits.folds import fold_split
from molgcn.data.splits.parts import PARTS, Split
from molgcn.data.splits.random import random_split
from molgcn.data.splits.rows import rows_to_split
from molgcn.data.splits.saved import load_split
from molgcn.data.splits.scaffold import scaffold_split
from molgcn.data.splits.sizes import split_sizes
from molgcn.data.strings import PackedStrings
from molgcn.data.target_columns import report_bounds, weighed
from molgcn.data.target_warnings import warn_of_targets
from molgcn.errors import UserError
from molgcn.spreadsheet import Writer

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedDataset:
    """A packed set with its split.

    Attributes:
        molecules: all molecules.
        splits: sorted int64 positions in `molecules` for "train", "val" and "test".
        title: file, folder or name of the source.
        data_hash: sha256 of everything that determines `molecules`: content of the source and options.
    """

    molecules: PackedMolecules
    splits: dict[str, np.ndarray]
    title: str
    data_hash: str
    _parts: dict[str, PackedMolecules] = field(default_factory=dict, init=False, repr=False)

    def part(self, name: str) -> PackedMolecules:
        """The molecules of "train", "val" or "test": one object however often it is asked for, so that jobs share what is made of it."""
        if name not in self._parts:
            self._parts[name] = self.molecules[self.splits[name]]
        return self._parts[name]

    @cached_property
    def trained_on(self) -> Contents:
        """What the molecules of "train" hold."""
        return contents_of(self.part("train"))


def load_dataset(config: DatasetConfig) -> LoadedDataset:
    """Loads, packs (or takes from the cache) and splits the data set of a configuration.

    Raises:
        UserError: for every mistake in the configuration or the data, naming the key or the file and row.
    """
    return split_molecules(config, *load_molecules(config))


def split_molecules(
    config: DatasetConfig, molecules: PackedMolecules, source: Source, data_hash: str, saved: Path | None = None
) -> LoadedDataset:
    """Splits what :func:`load_molecules` gave for this configuration, or as a run has saved its split in a file.

    Raises:
        UserError: see :func:`load_dataset`.
    """
    splits = _split(molecules, source, config) if saved is None else rows_to_split(load_split(saved), molecules.rows, str(saved))
    sizes = [len(splits[part]) for part in PARTS]
    counts = (f"{count:,}" for count in (*sizes, len(molecules) - sum(sizes)))
    log.info("%s: training %s, validation %s, test %s, unused %s", source.title, *counts)
    report_copies(molecules, splits)
    _check_targets(molecules, splits)
    molecules = weighed(molecules, splits["train"])
    warn_of_targets(molecules, splits["train"], config.given("transforms"))
    loaded = LoadedDataset(molecules, splits, source.title, data_hash)
    if unlike := describe_unlike(loaded.trained_on):
        log.warning("%s: the training part has unusual molecules: %s; they are trained on as they are", source.title, unlike)
    return loaded


def load_molecules(config: DatasetConfig) -> tuple[PackedMolecules, Source, str]:
    """The packed molecules of a configuration without a split, where they came from, and `data_hash` of :class:`LoadedDataset`.

    Raises:
        UserError: see :func:`load_dataset`.
    """
    source = SOURCES[config.name](config)
    config.check_columns(source.target_names)
    if config.name != "csv" and (config.units or config.identity):
        raise UserError(f"dataset.units, labels, bounded and weights are for dataset=csv, not for {source.title}. Leave them out.")
    featurizer = get_featurizer(source.features)
    if not config.stereo:
        featurizer = featurizer.without_stereo()
    identity = {
        **source.identity,
        "source": config.name,
        "features": [featurizer.name, featurizer.version],
        "targets": [*source.target_names],
        "on_error": config.on_error,
    }
    if isinstance(config.subset, int):
        identity["subset"] = [config.subset, config.split_seed]
    if config.duplicates in MERGES:
        identity["duplicates"] = config.duplicates
    if featurizer.stereo_off:
        identity["stereo"] = False
    for key in ("descriptors", "descriptor_generators"):
        if names := getattr(config, key):
            identity[key] = names
    if config.descriptors_path is not None:
        identity["descriptors_file"] = file_hash(Path(config.descriptors_path).expanduser())
    if config.standardize != "none":
        identity["standardize"] = config.standardize
    # another RDKit may compute other numbers, which the data are not to blame for
    cached = {**identity, "rdkit": version("rdkit")} if config.descriptor_generators or config.standardize != "none" else identity
    molecules = load_or_pack(config.name, cached, lambda: _pack(source, featurizer.spelled, config), config.cache_dir)
    if molecules.target_units != source.target_units:  # packed before units were given
        molecules = replace(molecules, target_units=source.target_units)
    _report_skipped(source.title, molecules.skipped)
    report_bounds(molecules, source.title)
    report_repeats(molecules, source.title)
    if config.duplicates == "error":
        refuse_repeats(molecules, source.title)
    return molecules, source, identity_hash(identity)


def _pack(source: Source, features: str, config: DatasetConfig) -> PackedMolecules:
    raw = source.read()
    if SOURCES[config.name](config).identity != source.identity:  # else the cache would give these rows for the file of before
        raise UserError(f"{source.title} has changed while it was read. Start again once it is complete.")
    raw, given = with_given(raw, config, source.title)
    if isinstance(config.subset, int):
        raw = _draw(raw, config.subset, config.split_seed, source.title)
    result = featurize_items(
        raw.items,
        features=features,
        on_error=cast(OnError, config.on_error),
        num_workers=config.num_workers,
        kind=raw.kind,
        label=raw.label,
        rows=raw.rows,
        source=source.title,
        generators=config.descriptor_generators or (),
        standardize=config.standardize,
    )
    skipped = [
        *raw.left_out,
        *(SkippedRow(int(raw.rows[i]), raw.items[i] if raw.kind == "smiles" else "", why) for i, why in result.failures),
    ]
    smiles = PackedStrings.from_strings(result.smiles or (raw.items[i].strip() for i in result.kept.tolist()))
    log.info("%s: %s molecules packed", source.title, f"{len(smiles):,}")
    targets = raw.targets[result.kept] if raw.targets is not None else result.labels
    molecules = result.packed.with_data(
        targets=targets,
        smiles=smiles,
        rows=raw.rows[result.kept],
        target_names=source.target_names,
        target_units=source.target_units,
        skipped=sorted(skipped, key=lambda row: row.row),
    )
    if raw.descriptors is not None:
        molecules = with_descriptors(molecules, raw.descriptors[result.kept], given)
    molecules = with_labels(molecules, *(None if one is None else one[result.kept] for one in (raw.bounds, raw.weights)))
    molecules = with_hashes(molecules, config.num_workers)
    if config.duplicates in MERGES:
        report_repeats(molecules, source.title)
        molecules = merge_repeats(molecules, config.duplicates)
        log.info("%s: dataset.duplicates=%s leaves %s molecules", source.title, config.duplicates, f"{len(molecules):,}")
    return molecules


def _draw(raw: RawMolecules, count: int, seed: int, title: str) -> RawMolecules:
    if count > len(raw.items):
        raise UserError(f"dataset.subset={count} asks for more than the {len(raw.items)} molecules of {title}.")
    chosen = np.sort(np.random.default_rng(seed).choice(len(raw.items), count, replace=False))
    return raw.take(chosen)


def _report_skipped(title: str, skipped: Sequence[SkippedRow]) -> None:
    if skipped:
        reasons = Counter(row.reason.split(":")[0] for row in skipped)
        listed = "; ".join(f"{count:,}: {reason}" for reason, count in reasons.most_common(4))
        log.warning("%s: %s rows are left out (%s); skipped.csv in the run's folder lists them", title, f"{len(skipped):,}", listed)


def _split(molecules: PackedMolecules, source: Source, config: DatasetConfig) -> Split:
    if config.split in ("random", "scaffold", "cv"):
        assert molecules.smiles is not None and molecules.hashes is not None
        groups = first_copies(molecules.hashes) if config.group_duplicates else None
        fractions, seed = config.split_fractions, config.split_seed + (config.repeat or 0)
        if config.split == "cv":
            return _fold(molecules, config, groups, seed)
        if config.split == "random":
            return random_split(len(molecules), fractions, seed, groups)
        return scaffold_split(molecules.smiles, fractions, seed, config.num_workers, groups)
    if config.split == "column":
        if source.column is None or config.split_column is None:
            raise UserError(
                f"split=column needs a CSV file and dataset.split_column=<column>, but {source.title} "
                + ("has no columns." if source.column is None else "came without split_column.")
            )
        values = source.column(config.split_column)
        return column_split(values, config.split_column, molecules.rows)
    if config.split == "file":
        if config.split_file is None:
            raise UserError("split=file needs dataset.split_file=<file.json>, for example the splits.json of a run.")
        return rows_to_split(load_split(config.split_file), molecules.rows, config.split_file)
    if source.benchmark is None:
        raise UserError(f"{source.title} has no benchmark split of its own. Use split=random, scaffold, column or file.")
    return rows_to_split(source.benchmark(), molecules.rows, f"{source.title}'s benchmark")


def _fold(molecules: PackedMolecules, config: DatasetConfig, copies: np.ndarray | None, seed: int) -> Split:
    if config.fold is None:
        raise UserError("dataset.split=cv is a run of several trainings, `python train.py`. Elsewhere name one fold, as in dataset.fold=0.")
    count = len(molecules)
    groups = np.arange(count) if copies is None else copies
    if config.cv_by == "scaffold":
        scaffolds = join_scaffolds(murcko_scaffolds(list(molecules.smiles or ()), config.num_workers), groups)
        groups = np.unique(scaffolds, return_inverse=True)[1]
    train, validation, _ = split_sizes(count, config.split_fractions)
    return fold_split(groups, np.zeros(count, np.int64), config.folds or FOLDS, config.fold, validation / (train + validation), seed)


def _check_targets(molecules: PackedMolecules, splits: Split) -> None:
    present = ~np.isnan(molecules.targets[splits["train"]])
    for name, any_value in zip(molecules.target_names, present.any(axis=0), strict=True):
        if not any_value:
            raise UserError(f"Target '{name}' has no value in the training part. Use another split or leave the target out.")
    if len(splits["val"]) and np.isnan(molecules.targets[splits["val"]]).all():
        raise UserError("No molecule of the validation part has a target's value, so that no epoch would be the best. Use another split.")


def write_skipped(path: str | Path, skipped: Sequence[SkippedRow]) -> None:
    """Writes the rows that were left out as CSV: row (counted from 0, without the header), SMILES, reason."""
    with open(path, "w", newline="") as file:
        writer = Writer(file)
        writer.writerow(("row", "smiles", "reason"))
        writer.writerows((row.row, row.smiles, row.reason) for row in skipped)
