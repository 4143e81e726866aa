"""The LightningDataModule: a loaded data set, its split and one loader a part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from lightning import LightningDataModule

from molgcn.data.config import DatasetConfig, LoaderConfig
from molgcn.data.layout import BatchLayout, LayoutChoice, lay_out
from molgcn.data.load import LoadedDataset, load_molecules, split_molecules
from molgcn.data.loader import MoleculeLoader, PackedLoader, PyGLoader
from molgcn.data.packed import PackedMolecules
from molgcn.data.rows import RowNames
from molgcn.data.sampler import MoleculeSampler
from molgcn.data.sources.base import Source
from molgcn.errors import UserError

_LOADED: dict[str, LoadedDataset] = {}
_MOLECULES: dict[str, tuple[PackedMolecules, Source, str]] = {}


def load_once(config: DatasetConfig, saved: Path | None = None) -> LoadedDataset:
    """Return the data set of a configuration, and keep it for the next job of this process while its files do not change.

    One set is kept at a time, so that a sweep over data sets does not fill the memory. `saved` is the file of a split that a run has saved,
    used in place of the split that the configuration draws.
    """
    key = _key(config, saved)
    if key not in _LOADED:
        _LOADED.clear()
        _LOADED[key] = split_molecules(config, *load_molecules_once(config), saved)
    return _LOADED[key]


def load_molecules_once(config: DatasetConfig) -> tuple[PackedMolecules, Source, str]:
    """Return :func:`~molgcn.data.load.load_molecules` of a configuration, and keep it for all its folds and repeats."""
    key = _key(replace(config, fold=None, repeat=None))
    if key not in _MOLECULES:
        _MOLECULES.clear()
        _MOLECULES[key] = load_molecules(config)
    return _MOLECULES[key]


def _key(config: DatasetConfig, saved: Path | None = None) -> str:
    values = {
        name: value for name, value in asdict(config).items() if name not in ("batch_size", "eval_batch_size", "resident", "num_workers")
    }
    files = *config.files.values(), config.descriptors_path, *config.feature_files.values(), *config.split_files, saved
    return repr((values, [_stamps(Path(path).expanduser()) for path in files if path is not None]))


def _stamps(path: Path) -> list[tuple[str, int, int]]:
    """Return name, modification time and size of a file and of the lists beside it, or of all files of a folder."""
    try:
        files = sorted(path.iterdir() if path.is_dir() else [path, *path.parent.glob("*.index"), *path.parent.glob("uncharacterized.txt")])
        found = [(file.name, file.stat()) for file in files if file.exists()]
    except OSError:  # loading reports it
        return []
    return [(name, state.st_mtime_ns, state.st_size) for name, state in found]


class MoleculeDataModule(LightningDataModule):
    """LightningDataModule with loaders over the training, validation and test parts of a data set.

    Args:
        config: configuration of the data set.
        loader: configuration of the loader. The name "auto" takes PyG's loader for backend "pyg", else the packed one.
        backend: name of the resolved backend.
        seed: seed of the training permutations.
        choose_layout: function by which the model chooses the layout of its batches. Default: the defaults of :class:`BatchLayout`.
        saved: file of a split that a run has saved, used in place of the split that the configuration draws.
    """

    def __init__(
        self,
        config: DatasetConfig,
        loader: LoaderConfig,
        backend: str,
        seed: int,
        choose_layout: LayoutChoice | None = None,
        saved: Path | None = None,
    ) -> None:
        super().__init__()
        self.config = config
        self.dataset = load_once(config, saved)
        self.seed = seed
        self.choose_layout = choose_layout
        default = "pyg" if backend == "pyg" else "packed"
        self.loader_name = default if loader.name == "auto" else loader.name
        self.make_loader: Callable[..., MoleculeLoader] = partial(PackedLoader, resident=config.resident)
        if self.loader_name == "pyg":
            self.make_loader = partial(PyGLoader, num_workers=loader.num_workers, unpacked={})
        self.train_loader: MoleculeLoader | None = None

    def part(self, name: str) -> PackedMolecules:
        return self.dataset.part(name)

    def _layout(self, molecules: PackedMolecules, batch_size: int, device: torch.device) -> BatchLayout:
        if self.choose_layout is None:
            return BatchLayout()
        typical = np.random.Generator(np.random.PCG64(0)).choice(len(molecules), min(batch_size, len(molecules)), replace=False)
        precision = self.trainer.precision if self.trainer else "32-true"
        return self.choose_layout(molecules, typical, device, precision, can_merge=self.loader_name == "packed")

    def _loader(self, part: str, shuffle: bool) -> MoleculeLoader:
        molecules = self.part(part)
        device = self.trainer.strategy.root_device if self.trainer else torch.device("cpu")
        batch_size = self.config.batch_size if shuffle else self._eval_batch_size(device)
        layout = self._layout(molecules, batch_size, device)
        loader = self.make_loader(
            lay_out(molecules, layout),
            batch_size,
            shuffle=shuffle,
            seed=self.seed,
            rank=self.trainer.global_rank if self.trainer else 0,
            world_size=self.trainer.world_size if self.trainer else 1,
            join_single=shuffle and layout.join_single,
            device=device,
            tile_nodes=layout.tile_nodes,
            classes=molecules.targets[:, 0] if shuffle and self.config.sampling == "balanced" else None,
        )
        if shuffle and layout.join_single:
            _refuse_single_atoms(loader.sampler, molecules)
        return loader

    def _eval_batch_size(self, device: torch.device) -> int:
        size = self.config.batch_size
        if self.config.eval_batch_size is not None:
            return self.config.eval_batch_size
        return max(size, min(4 * size, 512)) if device.type == "cuda" else size

    def train_dataloader(self) -> MoleculeLoader:
        """Return the loader over the training part, shuffled by the seed and the epoch."""
        self.train_loader = self._loader("train", shuffle=True)
        return self.train_loader

    def val_dataloader(self) -> MoleculeLoader | list[MoleculeLoader]:
        """Return the loader over the validation part, in order.

        For a set without a validation part it returns an empty list, with which Lightning skips validation.
        """
        return self.evaluation_loader("val") if "val" in self.dataset.parts else []

    def evaluation_loader(self, part: str) -> MoleculeLoader:
        """Return the loader over "train", "val" or "test", in order."""
        return self._loader(part, shuffle=False)


def _refuse_single_atoms(sampler: MoleculeSampler, molecules: PackedMolecules) -> None:
    """Raise UserError when a batch may be a single atom, for which batch norm has no variance."""
    single = np.flatnonzero(molecules.num_nodes_per_graph == 1)
    if len(single) and min(sampler.batch_size, sampler.share) == 1:
        name = f" ({molecules.smiles[single[0]]})" if molecules.smiles else ""
        alone = sampler.batch_size > 1
        cause, remedy = ("A single training molecule a process", "more of them") if alone else ("dataset.batch_size=1", "a larger one")
        raise UserError(
            f"{cause} makes a batch of one atom from the training molecule in row {RowNames.of(molecules)[single[0]]}{name}, over which "
            f"model.norm=batch cannot normalise. Use {remedy}, model.norm=layer, or features that keep hydrogens."
        )
