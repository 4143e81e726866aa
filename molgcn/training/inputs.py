"""Write what a run began with: its configuration, split, skipped rows, hashes of training molecules, and versions."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from lightning.pytorch.utilities import rank_zero_only

from molgcn.config.run import Config
from molgcn.data.datamodule import MoleculeDataModule
from molgcn.data.load import write_skipped
from molgcn.data.saved_parts import save_parts
from molgcn.data.splits.given import save_split
from molgcn.files.json_file import write_json
from molgcn.training.provenance import provenance
from molgcn.training.resume import config_text, write_config
from molgcn.training.trained_on import save_trained_on


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
    folder.mkdir(parents=True, exist_ok=True)
    write_config(config_text(config), folder)
    save_trained_on(folder, data.part("train"))
    if fresh:
        save_split(folder / "splits.json", data.dataset.splits, data.dataset.molecules.rows)
        if config.dataset.save_parts:
            save_parts(folder, config.dataset, data.dataset)
        if data.dataset.molecules.skipped:
            write_skipped(folder / "skipped.csv", data.dataset.molecules.skipped, data.dataset.molecules.files)
        (folder / "metrics.csv").unlink(missing_ok=True)  # left by a run that was killed before its first checkpoint
        device = torch.device("cuda" if torch.cuda.is_available() and config.trainer.get("accelerator") != "cpu" else "cpu")
        write_json(folder / "provenance.json", provenance(data.dataset.data_hash, device, config.seed))
