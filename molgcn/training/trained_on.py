"""Save hashes of the molecules that a run trained on in its folder, and not in checkpoints, which may be shared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from molgcn.data.packed import PackedMolecules
from molgcn.errors import UserError
from molgcn.files.whole_file import whole

TRAINED_ON = "training_hashes.npy"


def save_trained_on(folder: Path, molecules: PackedMolecules) -> None:
    """Write the distinct exact hashes of the training part, sorted uint64, into the run's folder."""
    assert molecules.exact_hashes is not None
    with whole(folder / TRAINED_ON) as temporary, open(temporary, "wb") as file:
        np.save(file, np.unique(molecules.exact_hashes), allow_pickle=False)


def count_trained_on(folders: Sequence[Path], molecules: PackedMolecules, parts: Mapping[str, np.ndarray]) -> dict[str, int] | None:
    """Count the molecules of each part that any of the runs in `folders` trained on; see :func:`were_trained_on`."""
    known = were_trained_on(folders, molecules)
    return None if known is None else {part: int(known[indices].sum()) for part, indices in parts.items()}


def were_trained_on(folders: Sequence[Path], molecules: PackedMolecules) -> np.ndarray | None:
    """Return whether any of the runs in `folders` trained on each molecule, bool [M], where equal to a network is the same.

    None is returned where a run did not save its hashes.
    """
    paths = [folder / TRAINED_ON for folder in folders]
    if not paths or not all(path.is_file() for path in paths):
        return None
    assert molecules.exact_hashes is not None
    return np.isin(molecules.exact_hashes, np.concatenate([_load(path) for path in paths]))


def _load(path: Path) -> np.ndarray:
    try:
        hashes: np.ndarray = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(
            f"{path} cannot be read: {error}. Restore it, or delete it to evaluate without a count of what was trained on."
        ) from error
    return hashes
