"""The files of a run that prediction needs, in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_NOT_KEPT = (
    "metrics.csv",
    "splits.json",
    "training_hashes.npy",
    "provenance.json",
    ".lock",
)  # files of a run that prediction does not need


def read_run(folder: Path) -> dict[str, bytes]:
    """Return the contents of the files of a run that prediction needs, by their paths within its folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        superseded = path.name == "last.ckpt" and path.with_name("best.ckpt").is_file()
        if path.is_file() and path.name not in _NOT_KEPT and not superseded:
            found[path.relative_to(folder).as_posix()] = path.read_bytes()
    return found


def write_run(files: Mapping[str, bytes], folder: Path) -> None:
    """Write the files of a run, by their paths within its folder, into a folder."""
    for name, content in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
