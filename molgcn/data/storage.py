"""The packed set on disk: one npy file an array and `meta.json`, opened by memory map."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from molgcn.data.atoms import FEATURIZERS, get_featurizer
from molgcn.data.fold import refuse_folded
from molgcn.data.packed import PackedMolecules, SkippedRow
from molgcn.data.strings import PackedStrings
from molgcn.errors import UserError

FORMAT = "molgcn-packed-1"
ARRAYS = ("node_ptr", "edge_ptr", "degree", "neighbors", "x", "targets", "rows")


def save_packed(molecules: PackedMolecules, folder: Path) -> None:
    """Writes into a temporary folder beside `folder`, syncs, then renames; an older `folder` is replaced."""
    refuse_folded(molecules)
    arrays = {name: getattr(molecules, name) for name in ARRAYS}
    for name in ("table", "hashes"):
        if getattr(molecules, name) is not None:
            arrays[name] = getattr(molecules, name)
    if molecules.smiles is not None:
        arrays |= {"smiles": molecules.smiles.data, "smiles_ptr": molecules.smiles.ptr}
    meta = {
        "format": FORMAT,
        "arrays": sorted(arrays),
        "features": _with_version(molecules.features),
        "target_names": list(molecules.target_names),
        "target_units": list(molecules.target_units),
        "skipped": [asdict(row) for row in molecules.skipped],
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.parent / f".{folder.name}-{uuid4().hex}"
    temporary.mkdir()  # unlike tempfile's, for whom the umask says: several users may share a cache
    try:
        for name, array in arrays.items():
            with open(temporary / f"{name}.npy", "wb") as file:
                np.save(file, array, allow_pickle=False)
                os.fsync(file.fileno())
        with open(temporary / "meta.json", "w") as file:
            json.dump(meta, file)
            file.flush()
            os.fsync(file.fileno())
        if folder.exists():
            shutil.rmtree(folder)
        temporary.rename(folder)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def load_packed(folder: Path) -> PackedMolecules:
    """Opens what :func:`save_packed` wrote, checking that the arrays fit each other."""
    try:
        meta = json.loads((folder / "meta.json").read_text())
        if meta.get("format") != FORMAT:
            raise ValueError(f"its format is {meta.get('format')!r}, this version reads {FORMAT!r}")
        arrays = {name: _open(folder / f"{name}.npy") for name in meta["arrays"]}
        smiles = PackedStrings(arrays.pop("smiles"), arrays.pop("smiles_ptr")) if "smiles" in arrays else None
        required: dict[str, Any] = {name: arrays[name] for name in ARRAYS}
        molecules = PackedMolecules(
            **required,
            table=arrays.get("table"),
            smiles=smiles,
            target_names=tuple(meta["target_names"]),
            target_units=tuple(meta["target_units"]),
            features=_spelled(meta["features"]),
            skipped=[SkippedRow(**row) for row in meta["skipped"]],
            hashes=arrays.get("hashes"),
        )
        _check(molecules)
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, EOFError) as error:
        raise UserError(
            f"{folder} is not a readable packed set: {error}. Expected a folder written by PackedMolecules.save; delete it and pack again."
        ) from error
    return molecules


def _with_version(features: str | None) -> str | None:
    """The featuriser with its version, since a plain name means a newer one some day; a name of one's own as it is."""
    if features is None or features.partition(":")[0] not in FEATURIZERS:
        return features
    featurizer = get_featurizer(features)
    return f"{featurizer.name}:{featurizer.version}"


def _spelled(features: str | None) -> str | None:
    """What :func:`_with_version` wrote; a plain name is of the time when every featuriser was in its first version."""
    if features is None or features.partition(":")[0] not in FEATURIZERS:
        return features
    return get_featurizer(features if ":" in features else f"{features}:1").spelled


def _open(path: Path) -> np.ndarray:
    array: np.ndarray = np.load(path, mmap_mode="r", allow_pickle=False)
    return array


def _check(molecules: PackedMolecules) -> None:
    """That the arrays fit each other in length and content: batches are gathered from them without further checks."""
    count = len(molecules)
    for name, least in (("node_ptr", 1), ("edge_ptr", 0)):
        ptr = getattr(molecules, name)
        if ptr.dtype != np.int64 or ptr.ndim != 1 or count < 1 or ptr[0] != 0 or np.diff(ptr).min() < least:
            raise ValueError(f"{name}.npy is not a list of int64 offsets that start with 0 and increase")
    expected = {
        "edge_ptr": count + 1,
        "degree": molecules.num_nodes,
        "neighbors": molecules.num_edges,
        "x": molecules.num_nodes,
        "targets": count,
        "rows": count,
    }
    for name, length in expected.items():
        if len(getattr(molecules, name)) != length:
            raise ValueError(f"{name}.npy has {len(getattr(molecules, name))} entries where {length} belong")
    if molecules.smiles is not None and len(molecules.smiles) != count:
        raise ValueError(f"there are {len(molecules.smiles)} SMILES for {count} molecules")
    if molecules.hashes is not None and (molecules.hashes.dtype != np.uint64 or len(molecules.hashes) != count):
        raise ValueError(f"hashes.npy is not a uint64 for each of {count} molecules")
    for name in ("degree", "neighbors") + (() if molecules.table is None else ("x",)):
        if getattr(molecules, name).dtype not in (np.uint8, np.uint16):
            raise ValueError(f"{name}.npy is of type {getattr(molecules, name).dtype}, not uint8 or uint16")
    for name in ("targets", "x" if molecules.table is None else "table"):
        array = getattr(molecules, name)
        if array.dtype != np.float32 or array.ndim != 2:
            raise ValueError(f"{name}.npy is no float32 matrix")
    if molecules.table is not None and int(molecules.x.max()) >= len(molecules.table):
        raise ValueError("x.npy holds a code beyond table.npy")
    bonds = np.diff(molecules.edge_ptr)
    if not np.array_equal(np.add.reduceat(molecules.degree, molecules.node_ptr[:-1], dtype=np.int64), bonds):
        raise ValueError("degree.npy does not add up to edge_ptr.npy")
    if np.any(molecules.neighbors >= np.repeat(molecules.num_nodes_per_graph, bonds)):
        raise ValueError("neighbors.npy holds an atom that its molecule does not have")
