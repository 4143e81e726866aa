"""Save and find the index of a run's training molecules: in the run's folder, and in its checkpoints where that was asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from molgcn.config.overrides import as_typed
from molgcn.config.run import Config
from molgcn.data.packed import PackedMolecules
from molgcn.domain.index import FILE, DomainIndex
from molgcn.errors import UserError
from molgcn.training.checkpoint_reader import load_checkpoint
from molgcn.training.checkpoint_writer import write
from molgcn.training.restore import run_folder

_KEY = "domain_index"


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
