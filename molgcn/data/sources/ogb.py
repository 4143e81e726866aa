"""dataset=ogb: a set of molecules of the Open Graph Benchmark (Hu et al., NeurIPS 2020) with the benchmark's own parts."""

from __future__ import annotations

import gzip
import zlib
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from molgcn.data.archive import WrongContentError
from molgcn.data.benchmark_sets import OGB_SETS
from molgcn.data.cache import cache_folder
from molgcn.data.config import DatasetConfig
from molgcn.data.download import RemoteFile, download_archive
from molgcn.data.sources.base import Source
from molgcn.data.sources.csv import open_csv
from molgcn.data.tables import column_names
from molgcn.errors import UserError, listed

ADDRESSES = tuple(f"{scheme}://snap.stanford.edu/ogb/data/graphproppred/csv_mol_download/" for scheme in ("https", "http"))
TABLE = "mapping/mol.csv.gz"  # a column for each target, then those of SMILES and of the molecules' names
LAST = ["smiles", "mol_id"]
PARTS = {part: f"split/scaffold/{name}.csv.gz" for part, name in (("train", "train"), ("val", "valid"), ("test", "test"))}


def open_ogb(config: DatasetConfig) -> Source:
    """Open the set that `dataset.set` names, downloaded or in the folder `dataset.path`.

    Raises:
        UserError: when no set is named, or the folder has no files of the set.
    """
    if config.set is None:
        raise UserError(f"dataset=ogb needs dataset.set=<set>, one of {listed(list(OGB_SETS))}.")
    folder = _downloaded(config) if config.path is None else _find(Path(config.path).expanduser(), config.set)
    path, one = folder / TABLE, OGB_SETS[config.set]
    header = column_names(path)
    if header[-2:] != LAST or len(header) != one.num_targets + 2:
        raise UserError(
            f"{path} has {len(header)} columns, the last {listed(header[-2:])}. Expected those of dataset.set={config.set}: "
            f"{one.num_targets} of targets, then smiles and mol_id. Delete the folder to fetch it again, or name the right dataset.path."
        )
    targets = config.targets or header[:-2]
    source = open_csv(replace(config, name="csv", set=None, path=str(path), smiles=LAST[0], targets=targets, split="random"))
    return replace(source, title=f"OGB {config.set}", target_units=(one.unit,) * len(targets), benchmark=partial(_parts, folder))


def _downloaded(config: DatasetConfig) -> Path:
    assert config.set is not None
    archive = f"{OGB_SETS[config.set].archive}.zip"
    folder = cache_folder(config.cache_dir) / "ogb" / config.set
    remote = RemoteFile(archive, tuple(address + archive for address in ADDRESSES))
    download_archive(remote, dict.fromkeys((TABLE, *PARTS.values()), _check_gzip), folder)
    return folder


def _check_gzip(path: Path) -> None:
    try:
        with gzip.open(path) as file:
            while file.read(1 << 20):
                pass
    except (OSError, EOFError, zlib.error) as error:
        raise WrongContentError(f"{path.name} is not a whole gzip file ({error})") from error


def _find(folder: Path, name: str) -> Path:
    """Return the folder of a set: the given one, or the one in it that OGB's package makes or that its archive has."""
    places = [folder, folder / f"ogbg_{name}", folder / OGB_SETS[name].archive]
    found = next((place for place in places if all((place / file).is_file() for file in (TABLE, *PARTS.values()))), None)
    if found is None:
        raise UserError(
            f"dataset.path={folder} has no files of dataset.set={name}. Expected a folder with {TABLE} and split/scaffold/, or one with "
            f"such a folder ogbg_{name} or {OGB_SETS[name].archive}, or no path, which downloads them."
        )
    return found


def _parts(folder: Path) -> dict[str, np.ndarray]:
    return {part: _rows(folder / name) for part, name in PARTS.items()}


def _rows(path: Path) -> np.ndarray:
    try:
        return np.loadtxt(path, np.int64, ndmin=1)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise UserError(f"{path} is not a list of rows, one whole number a line: {error}. Fetch it again.") from error
