"""Which molecules a run trained on: hashes in its folder, and not in a checkpoint, which may be shared where a private set may not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from molgcn.data.packed import PackedMolecules
from molgcn.errors import UserError

FILE = "training_molecules.npy"


def save_trained_on(folder: Path, molecules: PackedMolecules) -> None:
    """Writes the distinct hashes of the training part, sorted uint64, into the run's folder."""
    assert molecules.hashes is not None
    temporary = folder / f".{FILE}"
    with open(temporary, "wb") as file:
        np.save(file, np.unique(molecules.hashes), allow_pickle=False)
    temporary.replace(folder / FILE)


def count_trained_on(folders: Sequence[Path], molecules: PackedMolecules, parts: Mapping[str, np.ndarray]) -> dict[str, int] | None:
    """How many molecules of each part any of the runs in `folders` trained on, as the features see them; None where they do not say.

    Raises:
        UserError: when a run's file is damaged.
    """
    paths = [folder / FILE for folder in folders]
    if not paths or not all(path.is_file() for path in paths):
        return None
    assert molecules.hashes is not None
    trained_on = np.concatenate([_load(path) for path in paths])
    return {part: int(np.isin(molecules.hashes[indices], trained_on).sum()) for part, indices in parts.items()}


def _load(path: Path) -> np.ndarray:
    try:
        hashes: np.ndarray = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(
            f"{path} cannot be read: {error}. Restore it, or delete it to evaluate without a count of what was trained on."
        ) from error
    return hashes
