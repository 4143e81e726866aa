"""Saves packed sets as one npy file for each array and `meta.json` with their checksums, and opens them by memory map."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal
from uuid import uuid4

import numpy as np
from xxhash import xxh3_128

from molgcn.data.featurizers import FEATURIZERS, get_featurizer
from molgcn.data.merge_leaves import refuse_merged
from molgcn.data.molecule_set import MoleculeSet
from molgcn.data.packed_arrays import ARRAYS
from molgcn.data.rows import SkippedRow
from molgcn.data.set_checks import check_arrays
from molgcn.data.strings import PackedStrings
from molgcn.errors import UserError

FORMAT = "molgcn-packed-4"
_NAMES = ("target_names", "target_units", "descriptor_names", "atom_feature_names", "bond_feature_names")


def save_packed(molecules: MoleculeSet, folder: Path) -> None:
    """Write a set into a temporary folder beside `folder`, sync it and rename it. An older `folder` is replaced."""
    refuse_merged(molecules)
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.parent / f".{folder.name}-{uuid4().hex}"
    temporary.mkdir()  # unlike tempfile's folders it follows the umask, since several users may share a cache
    try:
        checksums = {}
        for name, array in _files(molecules).items():
            with open(temporary / f"{name}.npy", "wb") as file:
                np.save(file, array, allow_pickle=False)
                os.fsync(file.fileno())
            checksums[name] = _checksum(temporary / f"{name}.npy")
        meta = {
            "format": FORMAT,
            "checksums": checksums,
            "features": _renamed(molecules.features, "versioned"),  # since a plain name may later mean a newer one
            **{name: list(getattr(molecules, name)) for name in _NAMES},
            "skipped": [asdict(row) for row in molecules.skipped],
            "files": [[name, start] for name, start in molecules.files],
            "num_rows": molecules.num_rows,
        }
        with open(temporary / "meta.json", "w") as file:
            json.dump(meta | {"checksum": _meta_checksum(meta)}, file)
            file.flush()
            os.fsync(file.fileno())
        if folder.exists():
            shutil.rmtree(folder)
        temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def load_packed(folder: Path) -> MoleculeSet:
    """Open a set that :func:`save_packed` wrote, after comparing every file with its checksum.

    Reading the files for this also brings them into the page cache.

    Raises:
        UserError: when the folder is missing, damaged or of another format.
    """
    try:
        meta = json.loads((folder / "meta.json").read_text("ascii"))
        if not isinstance(meta, dict) or "format" not in meta:
            raise ValueError("meta.json names no format")
        if meta["format"] != FORMAT:
            raise ValueError(f"its format is {meta['format']!r}, this version reads {FORMAT!r}")
        if meta.pop("checksum", None) != _meta_checksum(meta):
            raise ValueError("meta.json is damaged: its checksum is not the one noted in it")
        names: dict[str, Any] = {name: tuple(meta.get(name, ())) for name in _NAMES}  # sets of older versions lack some
        molecules = MoleculeSet(
            **_open(folder, meta["checksums"]),
            **names,
            features=_renamed(meta["features"], "spelled"),
            skipped=[SkippedRow(**row) for row in meta["skipped"]],
            files=tuple((str(name), int(start)) for name, start in meta["files"]),
            num_rows=meta["num_rows"],
        )
        check_arrays(molecules)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{folder} is not a readable packed set: {error}. Expected a folder written by PackedMolecules.save; delete it and pack again."
        ) from error
    return molecules


def _renamed(features: str | None, name: Literal["versioned", "spelled"]) -> str | None:
    """Return a name of the featuriser. Names of unknown featurisers stay as they are."""
    if features is None or features.partition(":")[0] not in FEATURIZERS:
        return features
    return str(getattr(get_featurizer(features), name))


def _files(molecules: MoleculeSet) -> dict[str, np.ndarray]:
    """Return the arrays by the names of their files. Strings are saved as two arrays."""
    files: dict[str, np.ndarray] = {}
    for array in ARRAYS:
        value = getattr(molecules, array.name)
        if isinstance(value, PackedStrings):
            files |= {array.name: value.data, f"{array.name}_ptr": value.ptr}
        elif value is not None:
            files[array.name] = value
    return files


def _open(folder: Path, checksums: dict[str, str]) -> dict[str, Any]:
    """Open the set's arrays by memory map, None for optional arrays that it does not have."""
    files = {}
    for name, expected in checksums.items():
        path = folder / f"{name}.npy"
        if _checksum(path) != expected:
            raise ValueError(f"{path.name} is damaged: its checksum is not the one noted in meta.json")
        files[name] = np.load(path, mmap_mode="r", allow_pickle=False)
    values: dict[str, Any] = {}
    for array in ARRAYS:
        stored = files.get(array.name)
        if stored is None and not array.optional:
            raise ValueError(f"it has no {array.name}.npy")
        values[array.name] = PackedStrings(stored, files[f"{array.name}_ptr"]) if stored is not None and str in array.dtypes else stored
    return values


def _checksum(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, xxh3_128).hexdigest()


def _meta_checksum(meta: dict[str, Any]) -> str:
    return xxh3_128(json.dumps(meta, sort_keys=True).encode()).hexdigest()
