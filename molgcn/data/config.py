"""The groups `dataset` and `loader` of the configuration as checked dataclasses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from molgcn.data.benchmark_sets import BENCHMARK_SETS
from molgcn.data.column_names import ColumnName, ColumnNames, SmilesColumns, as_names, as_one_or_several
from molgcn.data.descriptors.generators import FOR_TREES, GENERATORS
from molgcn.data.featurizers import get_featurizer
from molgcn.data.featurizers.reactions import MODES
from molgcn.data.levels import GRAPH_LEVELS, Level
from molgcn.data.splits.parts import check_fractions
from molgcn.data.standardize import LEVELS
from molgcn.data.target_config import TargetConfig
from molgcn.errors import UserError, nearest, require

NAMES = ("builtin", "qm9", "zinc", "csv", *BENCHMARK_SETS)
DRAWN = ("random", "stratified", "scaffold", "butina", "kmeans", "kennard_stone", "group", "time")
SPLITS = (*DRAWN, "column", "file", "benchmark", "cv")
CV_BY = ("random", "stratified", "scaffold", "butina", "kmeans", "group")
FOLDS = 5  # number of folds of split=cv where dataset.folds is null
DUPLICATES = ("keep", "first", "mean", "median", "error")
AUTO = "auto"  # the only name in `tree_generators` where the number of rows decides
_MOST_FOR_TREES = 20_000  # rows; RDKit takes 10 ms for each, and fitting 500 trees some minutes


@dataclass
class DatasetConfig(TargetConfig):
    """Configuration of the data set and its split. conf/dataset.yaml says what each key means and which values it takes."""

    name: str = "builtin"
    set: str | None = None
    path: str | None = None
    val_path: str | None = None
    test_path: str | None = None
    header: bool = True
    smiles: SmilesColumns = "smiles"
    targets: ColumnNames | None = None
    atom_targets: ColumnNames | None = None
    bond_targets: ColumnNames | None = None
    atom_targets_path: str | None = None
    bond_targets_path: str | None = None
    descriptors: ColumnNames | None = None
    descriptors_path: str | None = None
    atom_features_path: str | None = None
    bond_features_path: str | None = None
    descriptor_generators: ColumnNames | None = None
    tree_generators: ColumnNames | None = None
    standardize: str = "none"
    features: str | None = None
    reaction_mode: str | None = None
    stereo: bool = True
    explicit_hydrogens: bool = False
    on_error: str = "raise"
    subset: str | int | None = None
    split: str = "random"
    split_fractions: Sequence[float] = (0.8, 0.1, 0.1)
    group_duplicates: bool = True
    duplicates: str = "keep"
    split_seed: int = 0
    split_column: ColumnName | None = None
    split_cutoff: float = 0.4
    split_clusters: int | None = None
    split_file: str | list[str] | None = None
    save_parts: bool = False
    folds: int | None = None
    cv_by: str = "random"
    fold: int | None = None
    repeats: int = 1
    repeat: int | None = None
    calibration_fraction: float = 0.0
    num_workers: int | None = None
    cache_dir: str | None = None
    batch_size: int = 128
    eval_batch_size: int | None = None
    resident: Literal["auto"] | bool = "auto"

    def __post_init__(self) -> None:
        """Check what can be checked without the data."""
        super().__post_init__()
        _one_of("name", self.name, NAMES)
        self._check_set()
        _one_of("split", self.split, SPLITS)
        _one_of("on_error", self.on_error, ("raise", "skip"))
        _one_of("standardize", self.standardize, LEVELS)
        _one_of("duplicates", self.duplicates, DUPLICATES)
        if self.features is not None:
            get_featurizer(self.features)
        if self.reaction_mode is not None:
            _one_of("reaction_mode", self.reaction_mode, MODES)
        if self.targets is not None:
            self.targets = as_names(self.targets)
            if not self.targets:
                raise UserError("dataset.targets is empty. Name at least one target, as in dataset.targets=[gap].")
            if len(set(self.targets)) < len(self.targets):
                raise UserError(f"dataset.targets names a target twice: {self.targets}. Name each once.")
        require(0 <= self.calibration_fraction < 1, "dataset.calibration_fraction", self.calibration_fraction, "at least 0 and below 1")
        self._check_smiles()
        self._check_descriptors()
        _check_levels(self)
        enough = self.num_workers is None or self.num_workers >= 0
        require(enough, "dataset.num_workers", self.num_workers, "a whole number of at least 0, or null to choose")
        require(self.batch_size >= 1, "dataset.batch_size", self.batch_size, "at least 1")
        if self.eval_batch_size is not None:
            require(self.eval_batch_size >= 1, "dataset.eval_batch_size", self.eval_batch_size, "at least 1, or null")
        require(self.split_seed >= 0, "dataset.split_seed", self.split_seed, "a whole number of at least 0")
        require(0 < self.split_cutoff < 1, "dataset.split_cutoff", self.split_cutoff, "a Tanimoto distance between 0 and 1")
        enough = self.split_clusters is None or self.split_clusters >= 2
        require(enough, "dataset.split_clusters", self.split_clusters, "at least 2, or null to choose")
        _check_files(self)
        self.split_fractions = check_fractions(self.split_fractions)
        self.subset = _check_subset(self.name, self.subset)
        _one_of("cv_by", self.cv_by, CV_BY)
        require(self.folds is None or self.folds >= 2, "dataset.folds", self.folds, "at least 2, of which each is held out once")
        require(self.repeats >= 1, "dataset.repeats", self.repeats, "at least 1")
        repeats = math.inf if self.split == "file" else self.repeats  # those of files are counted where the files are read
        for key, chosen, count in (("fold", self.fold, self.folds or FOLDS), ("repeat", self.repeat, repeats)):
            most = "" if count == math.inf else f" to {count - 1}"
            require(chosen is None or 0 <= chosen < count, f"dataset.{key}", chosen, f"a number from 0{most}, or null for each in turn")

    @property
    def split_files(self) -> list[str]:
        return [self.split_file] if isinstance(self.split_file, str) else list(self.split_file or ())

    @property
    def smiles_columns(self) -> list[str]:
        """The columns of the SMILES, one for each component of a row."""
        return [self.smiles] if isinstance(self.smiles, str) else list(self.smiles)

    def _check_set(self) -> None:
        sets = BENCHMARK_SETS.get(self.name)
        if sets is None:
            of_sets = " or ".join(f"dataset={name}" for name in BENCHMARK_SETS)
            require(self.set is None, "dataset.set", self.set, f"null with dataset={self.name}, or {of_sets}, whose sets it names")
        elif self.set == "all" and self.name == "tdc":
            raise UserError("dataset.set=all trains on each set by itself, which is a --multirun. Add --multirun, or name one set.")
        elif self.set is not None:
            _one_of("set", self.set, list(sets))

    def _check_smiles(self) -> None:
        self.smiles = as_one_or_several(self.smiles)
        if not self.header:
            require(self.name == "csv", "dataset.header", self.header, f"true with dataset={self.name}, or dataset=csv")
            self.smiles = "0" if self.smiles == "smiles" else self.smiles
        if self.name != "csv" and len(self.smiles_columns) > 1:
            raise UserError(
                f"dataset.smiles={self.smiles} names several columns, which dataset={self.name} does not have. Use dataset=csv."
            )
        if len(set(self.smiles_columns)) < max(len(self.smiles_columns), 1):
            raise UserError(f"dataset.smiles={self.smiles} is not valid: expected a column, or several different ones.")

    def _check_descriptors(self) -> None:
        for key in ("descriptors", "descriptor_generators", "tree_generators"):
            names = as_names(getattr(self, key)) or []
            setattr(self, key, names or None)
            if len(set(names)) < len(names):
                raise UserError(f"dataset.{key} names one twice: {names}. Name each once.")
        for key in ("descriptor_generators", "tree_generators"):
            for name in getattr(self, key) or ():
                if key != "tree_generators" or self.tree_generators != [AUTO]:
                    _one_of(key, name, tuple(GENERATORS))
        for of in self.feature_files if self.standardize != "none" else ():
            raise UserError(
                f"dataset.{of}_features_path does not go with dataset.standardize={self.standardize}, which gives molecules other {of}s in "
                "another order. Standardise the file of molecules first, and compute the features of what it then holds."
            )
        if both := [name for name in self.descriptors or () if name in (self.targets or ())]:
            raise UserError(f"dataset.descriptors={both} is a target too: the model would read what it is to predict. Leave it out of one.")

    @property
    def levels(self) -> tuple[Level, ...]:
        """What has targets of its own beside the molecules: "atom" and "bond", or one, or none."""
        return tuple(of for of in GRAPH_LEVELS if getattr(self, f"{of}_targets") or getattr(self, f"{of}_targets_path"))

    @property
    def feature_files(self) -> dict[str, Path]:
        """The files of features, by what they describe: "atom" or "bond"."""
        given = {"atom": self.atom_features_path, "bond": self.bond_features_path}
        return {of: Path(path).expanduser() for of, path in given.items() if path is not None}

    @property
    def default_tree_generators(self) -> list[str]:
        """The descriptors that trees take where `tree_generators` names none: those that the network does not have."""
        return [name for name in FOR_TREES if name not in (self.descriptor_generators or ())]

    def tree_generators_of(self, rows: int) -> list[str]:
        """Return the descriptors that are computed for the trees of a set of so many rows; none for `auto` and more than 20,000 rows."""
        if self.tree_generators == [AUTO]:
            return self.default_tree_generators if rows <= _MOST_FOR_TREES else []
        return self.tree_generators or []

    @property
    def files(self) -> dict[str, str]:
        """The given files by the part that they hold. "train" also holds the parts that have no file of their own."""
        given = {"train": self.path, "val": self.val_path, "test": self.test_path}
        return {part: path for part, path in given.items() if path is not None}


@dataclass(frozen=True)
class LoaderConfig:
    """Configuration of the loader, conf/loader."""

    name: Literal["auto", "packed", "pyg"] = "auto"  # "packed" or "pyg". "auto" takes PyG's loader for backend=pyg, else the packed one
    num_workers: int = 0  # worker processes of PyG's loader

    def __post_init__(self) -> None:
        require(self.num_workers >= 0, "loader.num_workers", self.num_workers, "a whole number of at least 0")


def _one_of(key: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise UserError(f"dataset.{key}={value} is not an option.{nearest(str(value), choices)}")


def _check_files(config: DatasetConfig) -> None:
    for key, path in (("val_path", config.val_path), ("test_path", config.test_path)):
        if path is None:
            continue
        if config.path is None or config.name in ("builtin", "zinc", *BENCHMARK_SETS):
            raise UserError(f"dataset.{key}={path} goes with a file of your own for training: dataset=csv dataset.path=<file>.")
        if config.split in ("column", "benchmark"):
            raise UserError(f"dataset.{key}={path} is a part of its own, but dataset.split={config.split} names all parts. Leave out one.")


def _check_levels(config: DatasetConfig) -> None:
    """Check the keys of targets of atoms and bonds, and that nothing is asked for that does not go with them."""
    for of in GRAPH_LEVELS:
        names = as_names(getattr(config, f"{of}_targets")) or []
        setattr(config, f"{of}_targets", names or None)
        if names and config.name != "csv":
            raise UserError(f"dataset.{of}_targets={names} names columns of dataset=csv. Use dataset.{of}_targets_path.")
        if names and getattr(config, f"{of}_targets_path") is not None:
            raise UserError(f"dataset.{of}_targets and dataset.{of}_targets_path both give targets of {of}s. Leave out one.")
    named = [*(config.targets or ()), *(config.atom_targets or ()), *(config.bond_targets or ())]
    if twice := {name for name in named if named.count(name) > 1}:
        raise UserError(f"dataset.targets, atom_targets and bond_targets name {sorted(twice)} twice. Name each once.")
    if not config.levels:
        return
    below = " and ".join(f"{of}s" for of in config.levels)
    if config.name == "csv" and not config.targets:
        config.descriptor_generators = None  # the recipe's, which only the head of molecules would read
        for key in ("descriptors", "descriptors_path"):
            if getattr(config, key) is not None:
                raise UserError(
                    f"dataset.{key} is of molecules, and all targets are of {below}, whose heads do not read it. Leave it out, or give "
                    "numbers of atoms with dataset.atom_features_path."
                )
    alternatives = {
        "bounded": (config.bounded, "without bounds"),
        "weights": (config.weights is not None, "training.task_weights, which weighs targets"),
        "duplicates": (config.duplicates in ("mean", "median"), "first, or keep"),
        "standardize": (config.standardize != "none", "a file of molecules that was standardised first, and their lists"),
        "sampling": (config.sampling is not None, "training.class_weights"),
        "calibration_fraction": (config.calibration_fraction > 0, "0: calibration is of targets of molecules"),
        "smiles": (len(config.smiles_columns) > 1, "one column of molecules"),
    }
    for key, (given, instead) in alternatives.items():
        if given:
            value = getattr(config, key)
            raise UserError(f"dataset.{key}={value} does not go with targets of {below}. Leave it out, and use {instead}.")


def _check_subset(name: str, subset: str | int | None) -> str | int | None:
    if subset is None or subset == "full":
        return None
    if isinstance(subset, str) and subset.isdigit():
        subset = int(subset)
    if isinstance(subset, int) and not isinstance(subset, bool) and subset > 0:
        return subset
    if subset == "12k" and name == "zinc":
        return subset
    allowed = "full, a positive number of molecules" + (" or 12k" if name == "zinc" else "")
    raise UserError(f"dataset.subset={subset} is not an option for dataset={name}. Use {allowed}.")
