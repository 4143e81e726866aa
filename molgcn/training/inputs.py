"""Write what a run began with: its configuration, split, skipped rows, hashes of training molecules, and versions.

The hashes are in the run's folder and not in checkpoints, which may be shared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_only

from molgcn.config.run import Config
from molgcn.data.datamodule import MoleculeDataModule
from molgcn.data.load import write_skipped
from molgcn.data.packed import PackedMolecules
from molgcn.data.splits.given import save_split
from molgcn.errors import UserError
from molgcn.files.json_file import write_json
from molgcn.files.whole_file import whole
from molgcn.training.provenance import provenance
from molgcn.training.resume import config_text, write_config

TRAINED_ON = "training_hashes.npy"


@contextmanager
def inputs_written(config: Config, folder: Path, data: MoleculeDataModule, fresh: bool) -> Iterator[None]:
    """Write a run's inputs into its folder, of which a resumed one has its split, skipped rows and versions already.

    Where the run then fails, a resumed one gets its earlier configuration back: keys with which it could not go on must not block the next
    `resume=`.
    """
    before = None if fresh else (folder / "config.yaml").read_text("utf-8")
    _write(config, folder, data, fresh)
    try:
        yield
    except Exception:
        if before is not None:
            rank_zero_only(write_config)(before, folder)
        raise


@rank_zero_only
def _write(config: Config, folder: Path, data: MoleculeDataModule, fresh: bool) -> None:
    """Write configuration and training molecules, and for a fresh run also split, skipped rows and provenance."""
    folder.mkdir(parents=True, exist_ok=True)
    write_config(config_text(config), folder)
    save_trained_on(folder, data.part("train"))
    if fresh:
        save_split(folder / "splits.json", data.dataset.splits, data.dataset.molecules.rows)
        if data.dataset.molecules.skipped:
            write_skipped(folder / "skipped.csv", data.dataset.molecules.skipped, data.dataset.molecules.files)
        (folder / "metrics.csv").unlink(missing_ok=True)  # left by a run that was killed before its first checkpoint
        device = torch.device("cuda" if torch.cuda.is_available() and config.trainer.get("accelerator") != "cpu" else "cpu")
        write_json(folder / "provenance.json", provenance(data.dataset.data_hash, device, config.seed))


def save_trained_on(folder: Path, molecules: PackedMolecules) -> None:
    """Write the distinct exact hashes of the training part, sorted uint64, into the run's folder."""
    assert molecules.exact_hashes is not None
    with whole(folder / TRAINED_ON) as temporary, open(temporary, "wb") as file:
        np.save(file, np.unique(molecules.exact_hashes), allow_pickle=False)


def count_trained_on(folders: Sequence[Path], molecules: PackedMolecules, parts: Mapping[str, np.ndarray]) -> dict[str, int] | None:
    """Count the molecules of each part that any of the runs in `folders` trained on, where equal to a network is the same.

    None is returned where a run did not save its hashes.
    """
    paths = [folder / TRAINED_ON for folder in folders]
    if not paths or not all(path.is_file() for path in paths):
        return None
    assert molecules.exact_hashes is not None
    trained_on = np.concatenate([_load(path) for path in paths])
    return {part: int(np.isin(molecules.exact_hashes[indices], trained_on).sum()) for part, indices in parts.items()}


def _load(path: Path) -> np.ndarray:
    try:
        hashes: np.ndarray = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise UserError(
            f"{path} cannot be read: {error}. Restore it, or delete it to evaluate without a count of what was trained on."
        ) from error
    return hashes
