"""Fit trees beside a trained network, and measure what network and trees predict alone."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from molgcn.blending.blend import Blend
from molgcn.blending.trees import import_lightgbm
from molgcn.comparison.baselines import measured_as, plain
from molgcn.config.run import Config
from molgcn.data.config import AUTO
from molgcn.data.packed import PackedMolecules
from molgcn.errors import UserError, counted
from molgcn.metrics.comparison import NETWORK, TREES
from molgcn.training.inference import Models, Of, predict_molecules

if TYPE_CHECKING:
    from molgcn.data.datamodule import MoleculeDataModule
    from molgcn.data.load import LoadedDataset
    from molgcn.training.module import MoleculeModule

log = logging.getLogger(__name__)

MOST = 200_000  # training molecules, whose descriptors are 2 GB of float32


def check_blend(config: Config, data: MoleculeDataModule) -> None:
    """Raise UserError before training where the trees that a configuration asks for could not be fitted after it."""
    if config.training.blend == "none":
        return
    import_lightgbm()
    if (count := len(data.part("train"))) > MOST:
        raise UserError(
            f"training.blend=trees is for at most {MOST:,} training molecules, and there are {count:,}. Leave it out, or train on a "
            "smaller set (dataset.subset=)."
        )


def settled_blend(config: Config, molecules: PackedMolecules) -> Config:
    """Return the configuration in which `training.blend=auto` is `trees` where the molecules have descriptors for them, and else `none`."""
    if config.training.blend != "auto":
        return config
    names, blend = config.dataset.tree_generators, "none" if molecules.tree_descriptors is None else "trees"
    if names == [AUTO]:
        names = config.dataset.tree_generators_of(len(molecules)) if blend == "trees" else None
        if blend == "none":
            log.info("No trees beside the network, since the set is large; training.blend=trees fits them all the same")
    training = replace(config.training, blend=cast(Any, blend))
    return replace(config, dataset=replace(config.dataset, tree_generators=names), training=training)


def fit_blend(module: MoleculeModule, data: LoadedDataset, folder: Path) -> None:
    """Fit the trees that a trained module's configuration asks for, let the module predict with them, and write them into its folder."""
    config = module.config
    if config.training.blend == "none":
        return
    known = data.part("train")
    log.info("Fitting trees to %s beside the network", counted(len(known), "molecule"))
    balanced = config.training.class_weights == "balanced" or config.dataset.sampling == "balanced"
    blend = Blend.fit(module.task, module.statistics, known, config.seed, balanced)
    if len(data.splits.get("val", ())):
        validation = data.part("val")
        blend = blend.weighed(predict_molecules(module, validation, config.dataset.batch_size, of="network"), validation)
    else:
        log.warning("There is no validation part to weigh network and trees by: the network counts 1 / 2 for numbers and 1 / 4 for classes")
    blend.save(folder)
    log.info("%s", blend.described)
    module.blend = blend


def blended_parts(models: Models, parts: Sequence[str]) -> dict[str, dict[str, float]]:
    """Measure what the networks and the trees of a blend predict alone, as baselines are measured.

    By the names of network and trees, metrics are by "<part>/<metric>/<target>" and their means by "<part>/<metric>".
    """
    wanted = plain(models.task).all_metrics  # the trees have no uncertainties
    found: dict[str, dict[str, float]] = {}
    names: dict[str, Of] = {NETWORK: "network", TREES: "trees"}
    for name, of in names.items():
        alone = models.only(of)
        predicted = {part: alone.predicted(part) for part in parts}
        measured = [measured_as(models.task, part, one.values, one.labels, wanted) for part, one in predicted.items()]
        found[name] = {key: value for own in measured for key, value in own.items()}
    return found
