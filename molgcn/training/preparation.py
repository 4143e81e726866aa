"""What comes before a run's data: the process, options that do not go together, and the run that goes on."""

from __future__ import annotations

import gc
import logging
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from lightning import seed_everything

from molgcn.config.run import Config
from molgcn.errors import UserError
from molgcn.nn.build import resolved_backend
from molgcn.training.checkpoint_format import features_of
from molgcn.training.checkpoint_reader import load_checkpoint
from molgcn.training.compatible import check_same_keys
from molgcn.training.freezing import check_freeze
from molgcn.training.resume import check_new
from molgcn.training.trainer import check_validates


def prepare_process(seed: int) -> None:
    """Free what an earlier run of this process holds, silence Lightning and seed all random numbers."""
    gc.collect()  # reference cycles keep an earlier run, and its memory on the device, alive
    quieten()
    seed_everything(seed, workers=True, verbose=False)


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
    """Check options that do not depend on the data, and return the configuration with the parts that `training.freeze` means.

    Raises:
        UserError: If options do not go together. The message names them.
    """
    check_validates(config)
    config = check_freeze(config)
    backend = resolved_backend(config.model, config.backend, len(config.dataset.smiles_columns))
    if config.trainer.get("sync_batchnorm") and (backend == "fused" or not torch.cuda.is_available()):
        raise UserError(
            "trainer.sync_batchnorm=true needs backend=pyg and GPUs, or backend=reference: backend=fused takes each device's own "
            "statistics. Leave it out, or use model.norm=layer, which needs none."
        )
    return config


def start_or_resume(config: Config, folder: Path, last: Path) -> tuple[Config, dict[str, Any] | None]:
    """Return the configuration of the run in `folder`, and the checkpoint `last` from which it goes on; None for a new run.

    Raises:
        UserError: If a new run would replace another, or the run cannot go on with this configuration.
    """
    if config.resume is None:
        check_new(folder)
        return config, None
    config = check_same_keys(config, folder)
    resumed = load_checkpoint(last)
    return _with_features_of(resumed, last, config), resumed


def _with_features_of(resumed: dict[str, Any], path: Path, config: Config) -> Config:
    """Return the configuration with the version of the featuriser with which the run began."""
    features, saved = config.dataset.features, features_of(resumed["molgcn"], path)
    if saved is None or features not in (None, resumed["molgcn"]["features"]):
        return config
    return replace(config, dataset=replace(config.dataset, features=saved))
