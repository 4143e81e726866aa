"""Loads the packed molecules and the split of a dataset configuration."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np

from molgcn.data.applicability import Contents, contents_of, describe_unlike
from molgcn.data.cache import file_hash, identity_hash, load_cached, load_or_pack
from molgcn.data.components import featurize_components
from molgcn.data.config import AUTO, DatasetConfig
from molgcn.data.descriptors.attach import with_descriptors
from molgcn.data.descriptors.given import with_given
from molgcn.data.duplicates import MERGES, merge_repeats, refuse_repeats, report_copies, report_repeats
from molgcn.data.featurize import Featurized, OnError, featurize_items
from molgcn.data.featurizers import Featurizer, get_featurizer
from molgcn.data.featurizers.reactions import DEFAULT_MODE
from molgcn.data.identity import first_copies, with_hashes
from molgcn.data.label_columns import weighed, with_labels
from molgcn.data.level_targets import GivenTargets, with_level_targets
from molgcn.data.levels import Rows
from molgcn.data.molecules import READING
from molgcn.data.own_features import with_features_of_files
from molgcn.data.packed import PackedMolecules
from molgcn.data.reaction_sets import check_reactions, for_reactions, mode_of
from molgcn.data.rows import Files, SkippedRow, file_and_row
from molgcn.data.sources import open_source
from molgcn.data.sources.base import Source
from molgcn.data.splits.draw import make_split
from molgcn.data.splits.drawn import cut_calibration
from molgcn.data.splits.given import load_split, rows_to_split
from molgcn.data.splits.parts import CALIBRATION, IN_WORDS, PARTS, Split
from molgcn.data.strings import PackedStrings
from molgcn.data.target_reports import report_bounds, report_labels, warn_of_targets
from molgcn.errors import UserError, counted
from molgcn.files.spreadsheet import Writer
from molgcn.files.whole_file import whole

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LoadedDataset:
    """A packed set with its split."""

    molecules: PackedMolecules  # all molecules
    # sorted int64 positions in `molecules` for "train", "val", "test" and, where there is one, "calibration". They are empty for a part
    # that the set does not have
    splits: dict[str, np.ndarray]
    title: str  # file, folder or name of the source
    data_hash: str  # sha256 of everything that determines `molecules`: content of the source and options
    _parts: dict[str, PackedMolecules] = field(default_factory=dict, init=False, repr=False)

    @property
    def parts(self) -> list[str]:
        """Names of the parts that have molecules."""
        return [part for part in PARTS if len(self.splits[part])]

    def part(self, name: str) -> PackedMolecules:
        """Return the molecules of a part.

        Repeated calls return the same object, so that jobs share what is computed from it.
        """
        if name not in self._parts:
            self._parts[name] = self.molecules[self.splits[name]]
        return self._parts[name]

    @cached_property
    def trained_on(self) -> Contents:
        """Counts of the elements, sizes and mixtures of the training molecules."""
        return contents_of(self.part("train"))


def load_dataset(config: DatasetConfig) -> LoadedDataset:
    """Load the data set of a configuration, pack it or take it from the cache, and split it.

    Raises:
        UserError: for any mistake in the configuration or the data, naming the key, or the file and row.
    """
    return split_molecules(config, *load_molecules(config))


def split_molecules(
    config: DatasetConfig, molecules: PackedMolecules, source: Source, data_hash: str, saved: Path | None = None
) -> LoadedDataset:
    """Split the molecules that :func:`load_molecules` returned for this configuration.

    `saved` is the file of a split that a run has saved, used in place of the split that the configuration draws.
    """
    splits = (
        make_split(molecules, source, config) if saved is None else rows_to_split(load_split(saved), molecules, str(saved), source.title)
    )
    if config.calibration_fraction and CALIBRATION not in splits:  # a split file may name a calibration part
        groups = first_copies(molecules.hashes) if config.group_duplicates and molecules.hashes is not None else None
        splits = cut_calibration(splits, config.calibration_fraction, config.split_seed, groups)
    unused = len(molecules) - sum(map(len, splits.values()))
    log.info("%s: %s, unused %s", source.title, ", ".join(f"{IN_WORDS[part]} {len(splits[part]):,}" for part in splits), f"{unused:,}")
    report_labels(molecules, splits, source.title)
    report_copies(molecules, splits)
    _check_targets(molecules, splits)
    molecules = weighed(molecules, splits["train"])
    warn_of_targets(molecules, splits["train"], config)
    loaded = LoadedDataset(molecules, splits, source.title, data_hash)
    if unlike := describe_unlike(loaded.trained_on):
        log.warning("%s: the training part has unusual molecules: %s; they are trained on as they are", source.title, unlike)
    return loaded


def load_molecules(config: DatasetConfig) -> tuple[PackedMolecules, Source, str]:
    """Return the packed molecules of a configuration without a split, their source, and the data hash of :class:`LoadedDataset`."""
    source = open_source(config)
    given = GivenTargets.of(config, source.target_names)
    names, units = (*source.target_names, *given.all_names), (*source.target_units, *given.units)
    config.check_columns(names)
    if config.name != "csv" and (config.units or config.identity):
        raise UserError(f"dataset.units, labels, bounded and weights are for dataset=csv, not for {source.title}. Leave them out.")
    featurizer = get_featurizer(source.features)
    if config.explicit_hydrogens:
        featurizer = featurizer.with_hydrogens()
    if not config.stereo:
        featurizer = featurizer.without_stereo()
    identity = _identity(config, source, featurizer, given, names)
    molecules = _load_packed(config, identity, lambda: _pack(source, featurizer, config, given))
    if molecules.target_units != units:  # packed with other units, which are not part of the identity
        molecules = replace(molecules, target_units=units)
    if source.files:  # the files may have had other names when they were packed
        starts = (start for _, start in molecules.files)
        molecules = replace(molecules, files=tuple(zip(source.files, starts, strict=True)))
    if molecules.skipped:
        reasons = Counter(row.reason.split(":")[0] for row in molecules.skipped)
        listed = "; ".join(f"{count:,}: {reason}" for reason, count in reasons.most_common(4))
        left_out = f"{counted(len(molecules.skipped), 'row')} {'is' if len(molecules.skipped) == 1 else 'are'} left out"
        log.warning("%s: %s (%s); skipped.csv in the run's folder lists what was left out", source.title, left_out, listed)
    check_reactions(molecules, source.title, config)
    report_bounds(molecules, source.title)
    report_repeats(molecules, source.title, config.standardize)
    if config.duplicates == "error":
        refuse_repeats(molecules, source.title, config.standardize)
    return molecules, source, identity_hash(identity)


def _identity(config: DatasetConfig, source: Source, featurizer: Featurizer, given: GivenTargets, names: Sequence[str]) -> dict[str, Any]:
    """Return what determines the packed set. Options that change nothing are left out, so that hashes outlast new options."""
    mode = mode_of(featurizer, config)
    options = {
        "subset": [config.subset, config.split_seed] if isinstance(config.subset, int) else None,
        "duplicates": config.duplicates if config.duplicates in MERGES else None,
        "explicit_hydrogens": featurizer.hydrogens_added or None,
        "stereo": False if featurizer.stereo_off else None,
        "reaction_mode": None if mode == DEFAULT_MODE else mode,
        "descriptors": config.descriptors,
        "descriptor_generators": config.descriptor_generators,
        "standardize": None if config.standardize == "none" else config.standardize,
    }
    if config.descriptors_path is not None:
        options["descriptors_file"] = file_hash(Path(config.descriptors_path).expanduser(), "dataset.descriptors_path")
    for of, path in config.feature_files.items():
        options[f"{of}_features_file"] = file_hash(path, f"dataset.{of}_features_path")
    for of in config.levels:  # with the same names of targets
        key = f"{of}_targets_path"
        path = getattr(config, key)
        options[f"{of}_targets"] = [*given.names[of]] if path is None else file_hash(Path(path).expanduser(), f"dataset.{key}")
    return {
        **source.identity,
        "source": config.name,
        "features": [featurizer.name, featurizer.version],
        "targets": [*names],
        "on_error": config.on_error,
        **{key: value for key, value in options.items() if value is not None},
    }


def _load_packed(config: DatasetConfig, identity: dict[str, Any], pack: Callable[[], PackedMolecules]) -> PackedMolecules:
    """Return the packed set from the cache, where it may be that of `auto`, as which training packs what its saved run names."""

    def key(tree_generators: list[str] | None) -> dict[str, Any]:
        # how molecules are read and the version of RDKit change what is cached, and not the data hash, by which runs are resumed
        cached = {**identity, "reading": READING}
        if tree_generators:
            cached["tree_generators"] = tree_generators
        if config.descriptor_generators or tree_generators or config.standardize != "none":
            cached["rdkit"] = version("rdkit")
        return cached

    names = config.tree_generators
    if names in (None, config.default_tree_generators):
        packed = load_cached(config.name, key([AUTO]), config.cache_dir)
        if packed is not None and (packed.tree_descriptors is None) == (names is None):
            return packed
    return load_or_pack(config.name, key(names), pack, config.cache_dir)


def _pack(source: Source, featurizer: Featurizer, config: DatasetConfig, targets_below: GivenTargets) -> PackedMolecules:
    raw = source.read()
    if open_source(config).identity != source.identity:  # else the cache would keep these rows for the old content
        raise UserError(f"{source.title} has changed while it was read. Start again once it is complete.")
    raw, given = with_given(raw, config, source.title)
    if isinstance(config.subset, int):
        total, count = len(raw.items), config.subset
        if count > total:
            raise UserError(
                f"dataset.subset={count} asks for more than the {counted(total, 'molecule')} of {source.title}. Give a smaller number."
            )
        raw = raw.take(np.sort(np.random.default_rng(config.split_seed).choice(total, count, replace=False)))
    featurize = partial(
        featurize_items,
        features=for_reactions(featurizer, raw, source.title, config).spelled,
        on_error=cast(OnError, config.on_error),
        num_workers=config.num_workers,
        kind=raw.kind,
        label=raw.label,
        rows=raw.rows,
        generators=config.descriptor_generators or (),
        tree_generators=config.tree_generators_of(len(raw.rows)),
        standardize=config.standardize,
        bond_numbers="bond" in config.feature_files or "bond" in config.levels,
        files=raw.files,
    )
    if raw.components:

        def of_column(items: Sequence[str], name: str) -> Featurized:
            return featurize(items, source=f"{source.title}, column '{name}'", component=config.smiles_columns.index(name))

        result = featurize_components(raw.components, config.smiles_columns, of_column)
        if result.molecules is None:
            raise UserError(f"No row of {source.title} has a molecule in each of {', '.join(config.smiles_columns)}.")
    else:
        result = featurize(raw.items, source=source.title)
    skipped = [
        *raw.left_out,
        *(SkippedRow(int(raw.rows[i]), raw.items[i] if raw.kind == "smiles" else "", why) for i, why in result.failures),
    ]
    smiles = PackedStrings.from_strings(result.smiles or (raw.items[i].strip() for i in result.kept.tolist()))
    log.info("%s: %s packed", source.title, counted(len(smiles), "molecule"))
    targets = raw.targets[result.kept] if raw.targets is not None else result.labels
    molecules = PackedMolecules.of(result.packed).with_data(
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
    molecules = replace(molecules, files=raw.files, num_rows=raw.num_rows)
    molecules = with_features_of_files(molecules, config, source.title, raw.num_rows, raw.kind)
    if config.levels:
        molecules = with_level_targets(molecules, targets_below, raw, config, source.title)
    molecules = with_hashes(molecules, config.num_workers)
    if config.duplicates in MERGES:
        report_repeats(molecules, source.title, config.standardize)
        molecules = merge_repeats(molecules, config.duplicates)
        log.info("%s: dataset.duplicates=%s leaves %s", source.title, config.duplicates, counted(len(molecules), "molecule"))
    return molecules


def _check_targets(molecules: PackedMolecules, splits: Split) -> None:
    present = ~np.isnan(_targets(molecules, splits["train"]))
    for name, any_value in zip(molecules.target_names, present.any(axis=0), strict=True):
        if not any_value:
            raise UserError(f"Target '{name}' has no value in the training part. Use another split or leave the target out.")
    if len(splits["val"]) and np.isnan(_targets(molecules, splits["val"])).all():
        raise UserError("No molecule of the validation part has a target's value, so that no epoch would be the best. Use another split.")


def _targets(molecules: PackedMolecules, part: np.ndarray) -> np.ndarray:
    rows = Rows.of(molecules)
    return rows.targets[rows.at(part)]


def write_skipped(path: str | Path, skipped: Sequence[SkippedRow], files: Files = ()) -> None:
    """Write the rows that were left out as CSV: row (counted from 0, without the header), SMILES, reason.

    If the set has several files, each line starts with the name of the row's file.
    """
    with whole(Path(path)) as temporary, open(temporary, "w", newline="") as file:
        writer = Writer(file)
        writer.writerow((*(["file"] if files else []), "row", "smiles", "reason"))
        for one in skipped:
            place = file_and_row(files, one.row) if files else (one.row,)
            writer.writerow((*place, one.smiles, one.reason))
