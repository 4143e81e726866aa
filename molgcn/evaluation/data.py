"""The data of `python -m molgcn.evaluate`: the data and the split of the model's own run, or another file."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from molgcn.data.benchmark_sets import BENCHMARK_SETS
from molgcn.data.config import DatasetConfig
from molgcn.data.levels import Levels
from molgcn.data.load import LoadedDataset, load_dataset, load_molecules
from molgcn.data.own_features import check_own_features
from molgcn.data.packed import PackedMolecules
from molgcn.data.splits.given import load_split, rows_to_split
from molgcn.data.splits.parts import CALIBRATION
from molgcn.errors import UserError
from molgcn.evaluation.config import EvaluationDataConfig, LabelledDataConfig
from molgcn.files.json_file import read_json
from molgcn.training.predictor import MoleculePredictor

log = logging.getLogger(__name__)

_FILES = ("descriptors_path", "atom_features_path", "bond_features_path")
_FOR_ANOTHER_FILE = ("smiles", "targets", *_FILES, "atom_targets_path", "bond_targets_path", "on_error")


def chosen_parts(data: LoadedDataset, split: str | None) -> dict[str, np.ndarray]:
    """Return the indices of the molecules of each part to evaluate, or raise UserError for a part that is empty or does not exist.

    `split` names one part, or "all" for all molecules as one. None means every part that has molecules, except "calibration".
    """
    parts = {part: indices for part, indices in data.splits.items() if len(indices)}
    if split is None:
        return {part: indices for part, indices in parts.items() if part != CALIBRATION}
    if split in parts:
        return {split: parts[split]}
    if split == "all":
        return {"all": np.arange(len(data.molecules))}
    if split in data.splits:
        raise UserError(f"split={split}, but the split of {data.title} has no molecule there. Use {' or '.join(parts)}, or split=all.")
    raise UserError(
        f"split={split}, but {data.title} was not split. Name its parts with dataset.split_file=<file.json>, or evaluate all of it with "
        "split=all."
    )


def own_data(given: EvaluationDataConfig, saved: DatasetConfig, run: Path | None) -> LoadedDataset:
    """Return the data set that a run was trained on, with the split that it saved.

    The keys that are given go over those that the run saved. Without the run's folder the split is drawn again.

    Raises:
        UserError: for keys that belong to another file, or when the data has changed since training.
    """
    for key in _FOR_ANOTHER_FILE:
        if getattr(given, key) is not None:
            raise UserError(f"dataset.{key} goes with dataset.path=<another file>. Without it the run's own data is read as the run did.")
    dataset = replace(saved, num_workers=given.num_workers, cache_dir=given.cache_dir or saved.cache_dir)
    split_file = given.split_file
    if run is not None:
        split_file = split_file or str(run / "splits.json")
    if split_file is None:
        log.info("The checkpoint lies outside its run's folder: the split is drawn again as dataset.split_seed=%s says", saved.split_seed)
        return load_dataset(dataset)
    molecules, source, data_hash = load_molecules(dataset)
    if run is not None and (run / "provenance.json").is_file():
        before = read_json(run / "provenance.json")["data_hash"]
        if before != data_hash:
            raise UserError(
                f"{source.title} has changed since {run} was trained on it (hash {before[:12]}, now {data_hash[:12]}), so that its split "
                "does not apply. Restore it, or evaluate the file as it is now with dataset.path=<file>."
            )
    return LoadedDataset(molecules, rows_to_split(load_split(split_file), molecules, split_file, source.title), source.title, data_hash)


def training_part(given: EvaluationDataConfig, saved: DatasetConfig, trainings: Sequence[Path]) -> PackedMolecules:
    """Return the molecules that the runs in some folders were trained on, with targets; UserError where they had different ones."""
    if differ_in_split(trainings):
        raise UserError(
            f"A random forest needs one training part, and the {len(trainings)} models have different ones. Use baseline=simple."
        )
    own = EvaluationDataConfig(num_workers=given.num_workers, cache_dir=given.cache_dir)
    data = own_data(own, saved, next(iter(trainings), None))
    return data.molecules[data.splits["train"]]


def differ_in_split(trainings: Sequence[Path]) -> bool:
    """Return whether runs have different training, validation and test parts."""
    files = [training / "splits.json" for training in trainings]
    return len({file.read_bytes() for file in files if file.is_file()}) > 1


def check_fits(molecules: PackedMolecules, module: MoleculePredictor) -> None:
    """Raise UserError where a file gives molecules another number of descriptors or own features than the model takes."""
    there, wanted = len(molecules.descriptor_names), len(module.descriptor_names)
    if there != wanted:
        raise UserError(
            f"With dataset.descriptors_path the molecules have {there} descriptors, and the model was trained with {wanted}. Give a file "
            "with the columns of the training."
        )
    for of, given in (("atom", molecules.atom_feature_names), ("bond", molecules.bond_feature_names)):
        key = f"dataset.{of}_features_path"
        check_own_features(len(given) or None, module.own_features[of], of, f"{key}=<file.npz>", key)


def other_data(
    path: str | None,
    given: LabelledDataConfig,
    saved: DatasetConfig,
    names: Sequence[str],
    units: Sequence[str],
    split_file: str | None = None,
    levels: Levels | None = None,
) -> LoadedDataset:
    """Return the molecules of a file, as one part "all" unless a split file names parts.

    What is not given is as in the data set that the model was trained on. The model has T targets with these names and units. Those of
    atoms and bonds (`levels`) are in columns of these names, or in files.

    Raises:
        UserError: when the columns, descriptors or units do not fit the model.
    """
    levels = levels or Levels(len(names))
    below: dict[str, Any] = {}
    for level in ("atom", "bond"):
        path_of_level = getattr(given, f"{level}_targets_path", None)
        if path_of_level is not None and level not in levels.counts:
            raise UserError(f"The model has no targets of {level}s. Leave out dataset.{level}_targets_path=.")
        key = f"{level}_targets" if path_of_level is None else f"{level}_targets_path"
        below[key] = path_of_level or [names[place] for place in levels.places(level)] or None
    all_names, names = names, names[: levels.molecule]
    if given.targets is not None and len(given.targets) != len(names):
        raise UserError(f"dataset.targets={given.targets} names {len(given.targets)} columns; the model predicts {', '.join(names)}.")
    for name, column in zip(names, given.targets or names, strict=True):
        if column != name and column in names:
            raise UserError(
                f"dataset.targets={given.targets} would compare predictions of {name} with the column {column}. Name the columns in the "
                f"order of the model's targets, {', '.join(names)}, or leave dataset.targets out where they have the same names."
            )
    if (saved.descriptors_path is None) != (given.descriptors_path is None):
        raise UserError(
            "The model takes descriptors of a .npz file. Give the file for these molecules with dataset.descriptors_path=."
            if given.descriptors_path is None
            else "The model takes no descriptors of a file. Leave out dataset.descriptors_path=."
        )
    columns = list(given.targets or names)
    texts = {column: saved.given("labels")[name] for column, name in zip(columns, names, strict=True) if name in saved.given("labels")}
    dataset = DatasetConfig(
        name=given.name or ("csv" if saved.name in ("builtin", *BENCHMARK_SETS) else saved.name),
        path=path,
        header=given.header,
        smiles=given.smiles or (saved.smiles if given.header else "smiles"),
        targets=columns or None,
        **below,
        labels=texts or None,
        bounded=saved.bounded,
        descriptors=saved.descriptors,
        **{key: getattr(given, key) for key in _FILES},
        descriptor_generators=saved.descriptor_generators,
        tree_generators=saved.tree_generators,
        standardize=saved.standardize,
        features=saved.features,
        reaction_mode=saved.reaction_mode,
        on_error=given.on_error or saved.on_error,
        num_workers=given.num_workers,
        cache_dir=given.cache_dir or saved.cache_dir,
    )
    molecules, source, data_hash = load_molecules(dataset)
    if [*molecules.target_names[levels.molecule :]] != [*all_names[levels.molecule :]]:
        raise UserError(
            f"{source.title} gives the targets {', '.join(molecules.target_names)}; the model predicts {', '.join(all_names)}. Give the "
            "matrices of atoms and bonds as many columns, and name them with an array `names`."
        )
    for name, theirs, ours in zip(names, source.target_units, units, strict=False):
        if theirs and theirs != ours:
            raise UserError(
                f"dataset.name={dataset.name} gives {name} in {theirs}, but the model predicts it in {ours or 'no unit'}. Read a file "
                "whose values are in the model's unit with dataset.name=csv."
            )
    parts = {"all": np.arange(len(molecules))}
    if split_file is not None:
        parts = rows_to_split(load_split(split_file), molecules, split_file, source.title)
    return LoadedDataset(molecules, parts, source.title, data_hash)
