"""Save and find what a run keeps of its training molecules: their hashes, and an index that tells how far others are from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from molgcn.config.overrides import as_typed
from molgcn.config.run import Config
from molgcn.data.packed import PackedMolecules
from molgcn.domain.index import FILE, DomainIndex
from molgcn.errors import UserError
from molgcn.files.whole_file import whole
from molgcn.training.checkpoint_file import load_checkpoint, write
from molgcn.training.restore import run_folder

TRAINED_ON = "training_hashes.npy"
_KEY = "domain_index"


def save_trained_on(folder: Path, molecules: PackedMolecules) -> None:
    """Write the distinct exact hashes of the training part, sorted uint64, into the run's folder; checkpoints may be shared."""
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


def save_index(config: Config, molecules: PackedMolecules, folder: Path, checkpoints: Sequence[Path]) -> None:
    """Write the index of the training molecules where `training.domain_index` says.

    That is nowhere, into the run's folder, or also into those of the run's checkpoint files that exist.
    """
    if config.training.domain_index == "none":
        return
    index = DomainIndex.of(molecules, config.dataset.standardize)
    index.save(folder / FILE)
    for path in checkpoints if config.training.domain_index == "checkpoint" else ():
        if path.is_file():
            write(load_checkpoint(path) | {_KEY: {name: torch.from_numpy(values) for name, values in index.arrays().items()}}, path)


def index_files(checkpoints: Sequence[Path], folder: Path) -> list[Path]:
    """Return the index files of the runs that wrote checkpoints; an index that only a checkpoint holds is written into `folder`.

    The message about a checkpoint without an index says how to get it.
    """
    files = []
    for number, checkpoint in enumerate(checkpoints):
        run = run_folder(checkpoint)
        file = None if run is None else run / FILE
        if file is None or not file.is_file():
            file = folder / f"{number}.npz"
            _from_checkpoint(checkpoint, run).save(file)
        files.append(file)
    return list(dict.fromkeys(files))


def _from_checkpoint(checkpoint: Path, run: Path | None) -> DomainIndex:
    arrays = load_checkpoint(checkpoint).get(_KEY)
    if arrays is None:
        how = "Give the folder of its run" if run is None else f"Write it with {as_typed('resume', run)} training.domain_index=run"
        raise UserError(
            f"domain=true compares with the molecules that {checkpoint} was trained on, and there is no index of them: neither {FILE} in "
            f"its run's folder, nor one in the checkpoint. {how}, or train with training.domain_index=checkpoint."
        )
    try:
        return DomainIndex.of_arrays({name: values.numpy() for name, values in arrays.items()})
    except (ValueError, AttributeError) as error:
        raise UserError(f"{checkpoint} holds a damaged index of training molecules: {error}. Restore the file, or train again.") from error
