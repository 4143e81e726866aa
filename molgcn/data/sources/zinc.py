"""dataset=zinc: 249,456 drug-like molecules, or the 12,000 of "Benchmarking Graph Neural Networks", with penalised logP.

The molecules are the ZINC-250k lists of JT-VAE (Jin et al., ICML 2018). The subset and its split are those of the index files of Dwivedi
et al. (arXiv:2003.00982). The label is computed by :func:`molgcn.data.labels.penalized_logp`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from molgcn.data.cache import cache_folder, file_hash
from molgcn.data.config import DatasetConfig
from molgcn.data.download import RemoteFile, download, recorded_hash
from molgcn.data.featurizers import get_featurizer
from molgcn.data.labels import VERSION
from molgcn.data.sources.base import RawMolecules, Source
from molgcn.data.text import open_text, smiles_lines
from molgcn.errors import UserError

TARGET = "penalized_logp"
STAND_IN_TRAIN, STAND_IN_VAL = 10_000, 1_000

# The addresses of the files, in fixed commits of two repositories. The checksums are the git object ids in these commits, which
# `git ls-tree <commit> data/zinc/` in the repository, or the GitHub API, shows.
_JTVAE = "https://{}/wengong-jin/icml18-jtnn{}d4c425a8a28fce7d0e8f5da741d27d3fce4a7ec0/data/zinc/"
_BENCHMARK = "https://{}/graphdeeplearning/benchmarking-gnns{}b6c407712fa576e9699555e1e035d1e327ccae6c/data/molecules/"
_MIRRORS = (("raw.githubusercontent.com", "/"), ("github.com", "/raw/"), ("cdn.jsdelivr.net/gh", "@"))


def _remote(base: str, name: str, git_blob: str, size: int | None = None) -> RemoteFile:
    return RemoteFile(name, tuple(base.format(*mirror) + name for mirror in _MIRRORS), size, git_blob)


LISTS = {
    "train": _remote(_JTVAE, "train.txt", "6b74ace82b9d7091186c6efc08b1f401a0d86ab9"),
    "val": _remote(_JTVAE, "valid.txt", "b6c51cb245602f46f7a5ccf6003d5d4d3f6a96fc", 1_106_144),
    "test": _remote(_JTVAE, "test.txt", "7dc73bee7f7889c2de7fd5836938a1bcfba66b4f", 225_615),
}
INDICES = {
    "train": _remote(_BENCHMARK, "train.index", "c4b804d9cdf36d42d0c98149a412dfa01d49b9f4", 65_110),
    "val": _remote(_BENCHMARK, "val.index", "78db245ba10348d0f677a8ea72ced7daea3bc35e", 5_541),
    "test": _remote(_BENCHMARK, "test.index", "428bc2610e8c288b5460150ae36117acb403e0e4", 4_782),
}
_LIST_NAMES = {"train": ("train",), "val": ("valid", "val"), "test": ("test",)}


@dataclass(frozen=True)
class Files:
    """Lists of SMILES and index files by part. A single list of unknown part is "all"."""

    lists: dict[str, Path]
    indices: dict[str, Path]


def open_zinc(config: DatasetConfig) -> Source:
    """Open ZINC, downloaded or at `dataset.path`.

    The path is a folder with lists of SMILES train, valid and test (.txt or .smi), or one list of SMILES.

    With the three lists, `split=benchmark` is the lists' own split. With `subset=12k` it has the 12,000 molecules that the index files
    name. A single list gets a substitute for this split. Its test part are the molecules in the index file (`dataset.split_file`, or a
    `*val*.index` beside the list). Its validation part are 1,000 other molecules drawn with `split_seed`. Its training part are 10,000
    other molecules with `subset=12k`, else all others.
    """
    if config.targets not in (None, [TARGET]):
        raise UserError(f"dataset=zinc has the target {TARGET} only, which is computed. Leave dataset.targets out.")
    if config.path is None:
        folder = cache_folder(config.cache_dir) / "zinc"
        files = Files({part: download(remote, folder) for part, remote in LISTS.items()}, {})
        if config.subset == "12k":
            files.indices.update({part: download(remote, folder) for part, remote in INDICES.items()})
    else:
        files = _find(Path(config.path).expanduser(), config.split_files[0] if config.split == "benchmark" and config.split_files else None)
    hash_of = recorded_hash if config.path is None else file_hash
    hashed = files.lists | {f"{part}.index": path for part, path in files.indices.items()}
    stand_in = "all" in files.lists and config.subset == "12k"
    features = config.features or "zinc"
    # version 1 of the label also counted hydrogens that were atoms; for heavy atoms only, both versions are equal
    version = 1 if get_featurizer(features).hydrogens == "implicit" else VERSION
    return Source(
        title="ZINC" if config.path is None else str(config.path),
        features=features,
        target_names=(TARGET,),
        target_units=("",),
        identity={
            "files": {name: hash_of(path) for name, path in hashed.items()},
            "subset": config.subset,
            "drawn": [config.split, config.split_seed] if stand_in else None,
            "label": version,
        },
        read=partial(_read, files, config),
        benchmark=partial(_parts, files, config),
    )


def _find(path: Path, index: str | None) -> Files:
    if path.is_dir():
        lists = {part: found for part, names in _LIST_NAMES.items() if (found := _list_in(path, names)) is not None}
        if len(lists) == len(_LIST_NAMES):
            indices = {part: path / f"{part}.index" for part in lists if (path / f"{part}.index").is_file()}
            return Files(lists, indices)
        single = sorted(path.glob("*.smi"))
        if len(single) != 1:
            raise UserError(
                f"The folder {path} holds {len(single)} .smi files and not the three lists train, valid and test (.txt or .smi). Give one "
                "list of SMILES as dataset.path, or put the three lists there."
            )
        path = single[0]
    if not path.is_file():
        raise UserError(
            f"dataset.path={path.absolute()} does not exist. Give a list of SMILES, one per line, or a folder with train, valid and test."
        )
    beside = [Path(index).expanduser()] if index else sorted(path.parent.glob("*val*.index"))
    if index and not beside[0].is_file():
        raise UserError(f"dataset.split_file={index} does not exist. Give the benchmark's index file: line numbers separated by commas.")
    return Files({"all": path}, {"test": beside[0]} if len(beside) == 1 else {})


def _list_in(folder: Path, names: tuple[str, ...]) -> Path | None:
    candidates = [folder / f"{name}{ending}" for name in names for ending in (".txt", ".smi")]
    return next((path for path in candidates if path.is_file()), None)


def _lines(path: Path) -> list[str]:
    with open_text(path) as lines:
        return [smiles for smiles, _ in smiles_lines(lines)]


def _index(path: Path, num_lines: int) -> np.ndarray:
    """Return the line numbers in an index file, which are counted from 0 and separated by commas, sorted."""
    words = path.read_text(errors="replace").replace(",", " ").split()
    if not words or not all(word.isdigit() for word in words):
        raise UserError(f"{path} is not an index file. Expected line numbers counted from 0, separated by commas.")
    numbers = np.array([int(word) for word in words], np.int64)
    if numbers.max() >= num_lines or len(np.unique(numbers)) < len(numbers):
        raise UserError(
            f"{path} names a line twice or one beyond the {num_lines:,} of the SMILES list. The two files do not belong together."
        )
    return np.sort(numbers)


def _parts(files: Files, config: DatasetConfig) -> dict[str, np.ndarray]:
    """Return the row numbers of train, val and test, counted through the lists in this order."""
    counts = {part: len(_lines(path)) for part, path in files.lists.items()}
    if "all" in counts:
        return _stand_in_parts(files, counts["all"], config)
    parts, start = {}, 0
    for part, count in counts.items():
        chosen = np.arange(count)
        if config.subset == "12k":
            if part not in files.indices:
                raise UserError(f"dataset.subset=12k needs the benchmark's {part}.index beside {files.lists[part]}.")
            chosen = _index(files.indices[part], count)
        parts[part] = start + chosen
        start += count
    return parts


def _stand_in_parts(files: Files, count: int, config: DatasetConfig) -> dict[str, np.ndarray]:
    path = files.lists["all"]
    if "test" not in files.indices:
        raise UserError(
            f"dataset.split=benchmark of the single list {path} needs the benchmark's val.index: give it as dataset.split_file, or put it "
            "beside the list as the only *val*.index; or use split=random."
        )
    test = _index(files.indices["test"], count)
    others = np.random.default_rng(config.split_seed).permutation(np.setdiff1d(np.arange(count), test))
    train = others[STAND_IN_VAL:]
    if config.subset == "12k":
        train = train[:STAND_IN_TRAIN]
        if len(train) < STAND_IN_TRAIN:
            raise UserError(f"dataset.subset=12k needs 12,000 molecules; {path} has {count:,}. Use dataset.subset=full.")
    return {"train": np.sort(train), "val": np.sort(others[:STAND_IN_VAL]), "test": test}


def _read(files: Files, config: DatasetConfig) -> RawMolecules:
    smiles = [text for path in files.lists.values() for text in _lines(path)]
    rows = np.arange(len(smiles))
    if config.subset == "12k":
        if "all" in files.lists and config.split != "benchmark":
            if len(smiles) < 12_000:
                raise UserError(f"dataset.subset=12k needs 12,000 molecules; {files.lists['all']} has {len(smiles):,}.")
            rows = np.sort(np.random.default_rng(config.split_seed).choice(len(smiles), 12_000, replace=False))
        else:
            rows = np.sort(np.concatenate(list(_parts(files, config).values())))
    return RawMolecules([smiles[row] for row in rows], rows, label=TARGET, num_rows=len(smiles))
