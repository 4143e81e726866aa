"""Build the data module and the LightningModule of a run, with the weights that it starts from."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch

from molgcn.comparison.forest import check_forest
from molgcn.config.run import Config
from molgcn.data.applicability import domain_of
from molgcn.data.components import num_components
from molgcn.data.datamodule import MoleculeDataModule, load_molecules_once
from molgcn.nn.batch_layout import batch_layout
from molgcn.nn.build import edge_channels_of, resolved_backend
from molgcn.tasks.choice import check_options, choose_task
from molgcn.tasks.registry import settled
from molgcn.training.calibrating import check_calibration
from molgcn.training.compatible import check_data, check_goes_on
from molgcn.training.module import MoleculeModule
from molgcn.training.restore import find_checkpoint
from molgcn.training.trainer import DOUBLE, check_validates
from molgcn.training.transfer import start_from


def build_data(config: Config, split: Path | None = None) -> MoleculeDataModule:
    """Load the data of a run, with the saved split of a resumed one: another version might draw another.

    Raises:
        UserError: If the data cannot be used, an option needs a part that it does not have, or a resumed run's data has changed.
    """
    if split is not None:
        check_data(load_molecules_once(config.dataset)[2], split.parent)
    backend = resolved_backend(config.model, config.backend, len(config.dataset.smiles_columns))
    choose_layout = partial(batch_layout, config.model, backend, config.backend.strategy)
    data = MoleculeDataModule(config.dataset, config.loader, backend, config.seed, choose_layout, split)
    check_validates(config, has_part="val" in data.dataset.parts)
    return data


def build_module(config: Config, data: MoleculeDataModule) -> MoleculeModule:
    """Return the untrained module of a configuration, sized and scaled for the data.

    In the module's own configuration, what is `auto` of the task has the value that the data decided.

    Raises:
        UserError: If the task or an option does not fit the data.
    """
    molecules = data.dataset.molecules
    task = choose_task(config.task, data.dataset, config.dataset)
    config = settled(config, task)
    check_options(task, config, molecules)
    torch.manual_seed(config.seed)  # the weights depend on the seed alone, not on what loading drew
    module = MoleculeModule(
        config,
        in_channels=molecules.num_features,
        task=task,
        statistics=task.statistics_of(molecules.targets[data.dataset.splits["train"]]),
        features=molecules.features,
        trained_on=domain_of(data.dataset.trained_on),
        edge_channels=edge_channels_of(config.model, molecules),
        descriptor_names=molecules.descriptor_names,
        num_components=num_components(molecules),
    )
    module.fit_descriptors(data.part("train").descriptors)
    return module


def load_weights(module: MoleculeModule, data: MoleculeDataModule, folder: Path, resumed: dict[str, Any] | None) -> None:
    """Give an untrained module the weights of `ckpt_path`, if it names any, and check that training can start or go on with this data.

    Where the run goes on from a checkpoint, `resumed`, the Trainer restores the weights.

    Raises:
        UserError: If the weights, the baseline or the calibration do not fit.
    """
    config = module.config
    if config.training.baseline == "rf":
        check_forest(data.part("train"))
    if config.trainer.get("precision") in DOUBLE:
        module.double()  # Lightning does so only after it has restored the weights
    if resumed is not None:
        check_goes_on(module, resumed, folder)
    elif config.ckpt_path is not None:
        start_from(module, find_checkpoint(config.ckpt_path, "ckpt_path"))
    check_calibration(config.training, module.task, data.dataset)
