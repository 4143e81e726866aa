"""What comes before a fit: the process, checks of options, the run that goes on, the data module and the LightningModule."""

from __future__ import annotations

import gc
import logging
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning import seed_everything
from lightning.pytorch.utilities import rank_zero_only

from molgcn.comparison.baselines import check_forest
from molgcn.config.run import Config
from molgcn.data.applicability import domain_of
from molgcn.data.components import num_components
from molgcn.data.datamodule import MoleculeDataModule, load_molecules_once
from molgcn.data.levels import Levels, Rows
from molgcn.errors import UserError
from molgcn.nn.batch_layout import batch_layout
from molgcn.nn.build import edge_channels_of, resolved_backend
from molgcn.tasks.choice import check_options as check_task_options
from molgcn.tasks.choice import choose_task
from molgcn.tasks.registry import check_without_data, settled
from molgcn.training.blending import check_blend, settled_blend
from molgcn.training.calibrating import check_calibration
from molgcn.training.checkpoint_file import load_checkpoint
from molgcn.training.checkpoint_format import features_of
from molgcn.training.compatible import check_data, check_goes_on, check_same_keys
from molgcn.training.freezing import check_freeze
from molgcn.training.module import MoleculeModule
from molgcn.training.restore import find_checkpoint
from molgcn.training.resume import check_new
from molgcn.training.trainer import DOUBLE, check_trainer, check_validates
from molgcn.training.transfer import start_from


def prepare_process(seed: int) -> None:
    """Free what an earlier run of this process holds, silence Lightning and seed all random numbers."""
    gc.collect()  # reference cycles keep an earlier run, and its memory on the device, alive
    quieten()
    seed_everything(seed, workers=True, verbose=False)
    if rank_zero_only.rank:  # type: ignore[attr-defined]
        logging.getLogger("molgcn").setLevel(logging.WARNING)  # the first process of several says what all do


def quieten() -> None:
    """Silence Lightning's messages about itself, and its warnings about choices that this program makes for the user."""
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    logging.getLogger("lightning.fabric").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", ".*does not have many workers.*")
    warnings.filterwarnings("ignore", ".*smaller than the logging interval.*")
    warnings.filterwarnings("ignore", ".*module.s. in eval mode at the start of training.*")
    warnings.filterwarnings("ignore", ".*LeafSpec.*is deprecated.*")
    warnings.filterwarnings("ignore", ".*Total length of `list` across ranks is zero.*")  # there is no validation part


def check_options(config: Config) -> Config:
    """Check options that do not depend on the data, and return the configuration with the parts that `training.freeze` means."""
    check_trainer(config.trainer)
    check_validates(config)
    config = check_freeze(config)
    check_without_data(config)
    backend = resolved_backend(config.model, config.backend, len(config.dataset.smiles_columns), config.dataset.levels)
    if config.trainer.get("sync_batchnorm") and backend == "fused":
        raise UserError(
            "trainer.sync_batchnorm=true does not go with backend=fused, whose operators take each device's own statistics. Use "
            "backend=reference or backend=pyg, or model.norm=layer, which needs no statistics."
        )
    return config


def start_or_resume(config: Config, folder: Path, last: Path) -> tuple[Config, dict[str, Any] | None]:
    """Return the configuration of the run in `folder`, and the checkpoint `last` from which it goes on; None for a new run.

    A new run must not replace another, and one that goes on must be able to with this configuration.
    """
    if config.resume is None:
        check_new(folder)
        return config, None
    config = check_same_keys(config, folder)
    resumed = load_checkpoint(last)
    return _with_features_of(resumed, last, config), resumed


def _with_features_of(resumed: dict[str, Any], path: Path, config: Config) -> Config:
    features, saved = config.dataset.features, features_of(resumed["molgcn"], path)
    if saved is None or features not in (None, resumed["molgcn"]["features"]):
        return config
    return replace(config, dataset=replace(config.dataset, features=saved))


def build_data(config: Config, split: Path | None = None) -> MoleculeDataModule:
    """Load the data of a run, with the saved split of a resumed one, whose data must not have changed.

    Another version of the program might draw another split.
    """
    if split is not None:
        check_data(load_molecules_once(config.dataset)[2], split.parent)
    backend = resolved_backend(config.model, config.backend, len(config.dataset.smiles_columns), config.dataset.levels)
    choose_layout = partial(batch_layout, config.model, backend, config.backend.strategy)
    data = MoleculeDataModule(config.dataset, config.loader, backend, config.seed, choose_layout, split)
    check_validates(config, has_part="val" in data.dataset.parts)
    return data


def build_module(config: Config, data: MoleculeDataModule) -> MoleculeModule:
    """Return the untrained module of a configuration, sized and scaled for the data, after a check that they fit.

    In the module's own configuration, what is `auto` of the task has the value that the data decided.
    """
    molecules = data.dataset.molecules
    levels = Levels.of(molecules)
    task = choose_task(config.task, data.dataset, config.dataset, config.training.loss)
    config = settled_blend(settled(config, task), molecules)
    check_task_options(task, config, molecules)
    torch.manual_seed(config.seed)  # the weights depend on the seed alone, not on what loading drew
    module = MoleculeModule(
        config,
        in_channels=molecules.num_features,
        task=task,
        statistics=task.statistics_of(Rows.of(data.part("train")).targets),
        features=molecules.features,
        trained_on=domain_of(data.dataset.trained_on),
        edge_channels=edge_channels_of(config.model, molecules),
        descriptor_names=molecules.descriptor_names,
        atom_feature_names=molecules.atom_feature_names,
        bond_feature_names=molecules.bond_feature_names,
        num_components=num_components(molecules),
        num_atom_targets=levels.atom,
        num_bond_targets=levels.bond,
    )
    module.fit_descriptors(data.part("train").descriptors)
    module.fit_own_features(data.part("train"))
    return module


def load_weights(module: MoleculeModule, data: MoleculeDataModule, folder: Path, resumed: dict[str, Any] | None) -> None:
    """Give an untrained module the weights of `ckpt_path`, if it names any, and check that training can start or go on with this data.

    Where the run goes on from a checkpoint, `resumed`, the Trainer restores the weights.
    """
    config = module.config
    check_blend(config, data)
    if config.training.baseline == "rf":
        check_forest(data.part("train"))
    if config.trainer.get("precision") in DOUBLE:
        module.double()  # Lightning does so only after it has restored the weights
    if resumed is not None:
        check_goes_on(module, resumed, folder)
    elif config.ckpt_path is not None:
        start_from(module, find_checkpoint(config.ckpt_path, "ckpt_path"))
    check_calibration(config.training, module.task, data.dataset)
