"""dataset=tdc: a set of TDC's ADMET group (Huang et al., NeurIPS 2021) with the benchmark's own parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import numpy as np

from molgcn.data.archive import WrongContentError
from molgcn.data.benchmark_sets import TDC_SETS
from molgcn.data.cache import cache_folder
from molgcn.data.config import DatasetConfig
from molgcn.data.download import RemoteFile, download_archive
from molgcn.data.fingerprints import of_each
from molgcn.data.sources.base import Source
from molgcn.data.sources.csv import open_csv
from molgcn.data.sources.joined import open_files
from molgcn.data.tables import read_columns
from molgcn.errors import UserError, listed

ARCHIVE = RemoteFile("admet_group.zip", ("https://dataverse.harvard.edu/api/access/datafile/4426004",))
SMILES, LABEL = "Drug", "Y"  # columns of all files
TRAINING = 0.875  # share of the molecules beside the test part; the others validate


def open_tdc(config: DatasetConfig) -> Source:
    """Open the set that `dataset.set` names, downloaded or in the folder `dataset.path`.

    Raises:
        UserError: when no set or a target is named, or the folder has no files of the set.
    """
    if config.set is None:
        raise UserError(f"dataset=tdc needs dataset.set=<set>, one of {listed(list(TDC_SETS))}.")
    if config.targets not in (None, [config.set]):
        raise UserError(f"dataset=tdc has one target, {config.set}. Leave dataset.targets out.")
    train, test = _downloaded(config) if config.path is None else _find(Path(config.path).expanduser(), config.set)
    table = replace(config, name="csv", set=None, path=str(train), test_path=str(test), smiles=SMILES, targets=[LABEL], split="random")
    source = open_files(open_csv, table)
    return replace(
        source,
        title=f"TDC {config.set}",
        target_names=(config.set,),
        target_units=(TDC_SETS[config.set].unit,),
        benchmark=partial(_parts, train, test, config.split_seed),
    )


def _downloaded(config: DatasetConfig) -> tuple[Path, Path]:
    names = [f"{name}/{part}.csv" for name in TDC_SETS for part in ("train_val", "test")]
    folder = cache_folder(config.cache_dir) / "tdc"
    download_archive(ARCHIVE, dict.fromkeys(names, _check_table), folder)
    return folder / f"{config.set}/train_val.csv", folder / f"{config.set}/test.csv"


def _check_table(path: Path) -> None:
    with open(path, errors="replace") as file:
        header = file.readline().strip().split(",")
    if not {SMILES, LABEL} <= set(header):
        raise WrongContentError(f"{path.parent.name}/{path.name} has no columns {SMILES} and {LABEL}")


def _find(folder: Path, name: str) -> tuple[Path, Path]:
    """Return the files of a set in a folder, by their names there or as PyTDC unpacks them."""
    places = [
        (folder / f"{name}_train_val.csv", folder / f"{name}_test.csv"),
        *((place / name / "train_val.csv", place / name / "test.csv") for place in (folder, folder / "admet_group")),
    ]
    found = next((pair for pair in places if all(path.is_file() for path in pair)), None)
    if found is None:
        wanted = " or ".join(f"{train.relative_to(folder)} and {test.relative_to(folder)}" for train, test in places[:2])
        raise UserError(
            f"dataset.path={folder} has no files of dataset.set={name}. Expected a folder with {wanted}, or no path, which downloads them."
        )
    return found


def _parts(train: Path, test: Path, seed: int) -> dict[str, np.ndarray]:
    """Return the rows of the benchmark's test part, and of the training and validation parts that PyTDC draws by a seed."""
    smiles, others = read_columns(train, [SMILES])[SMILES], read_columns(test, [SMILES])[SMILES]
    training, validation = scaffold_split(smiles, seed)
    return {"train": training, "val": validation, "test": np.arange(len(smiles), len(smiles) + len(others))}


def scaffold_split(smiles: Sequence[str], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Divide molecules by scaffold, as `get_train_valid_split` of PyTDC's benchmark groups does for the same seed.

    Scaffolds come in random order. Each joins the training part, seven eighths of the molecules, if it fits in, else the validation part.

    Args:
        smiles: the molecules. What RDKit does not read is in neither part.
        seed: random seed.

    Returns:
        The sorted positions of the training and of the validation part.
    """
    groups: dict[str, list[int]] = {}
    for place, scaffold in enumerate(of_each(_scaffold, list(smiles), None, "scaffolds")):
        if scaffold is not None:
            groups.setdefault(scaffold, []).append(place)
    ordered = list(groups.values())
    Random(seed).shuffle(ordered)
    room = int(sum(map(len, ordered)) * TRAINING)
    training: list[int] = []
    validation: list[int] = []
    for group in ordered:
        (training if len(training) + len(group) <= room else validation).extend(group)
    return np.sort(np.array(training, np.int64)), np.sort(np.array(validation, np.int64))


def _scaffold(smiles: str) -> str | None:
    """Return the Bemis-Murcko scaffold that PyTDC takes: with RDKit's own reading of hydrogens and isotopes, and without chirality."""
    from rdkit import Chem
    from rdkit.Chem.Scaffolds.MurckoScaffold import MurckoScaffoldSmiles

    mol = Chem.MolFromSmiles(smiles)
    return None if mol is None else MurckoScaffoldSmiles(mol=mol, includeChirality=False)
