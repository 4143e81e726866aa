"""Compare a training run's metrics with baselines, intervals and thresholds when it ends."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from molgcn.comparison.baselines import baselines_of
from molgcn.comparison.compare import chosen_thresholds, compare
from molgcn.data.datamodule import MoleculeDataModule
from molgcn.data.label_columns import measured
from molgcn.metrics.comparison import Comparison
from molgcn.training.inference import predict_molecules
from molgcn.training.module import MoleculeModule


def compare_run(module: MoleculeModule, data: MoleculeDataModule, metrics: Mapping[str, float], part: str) -> tuple[Comparison, np.ndarray]:
    """Compare a part's metrics with baselines, and add intervals and metrics at thresholds that validation chooses.

    Args:
        module: the trained module, with the run's configuration.
        data: the run's data module.
        metrics: the run's metrics, by "<part>/<metric>/<target>".
        part: the part whose metrics are compared.

    Returns:
        The comparison, and the predictions [M, P] of the part's molecules.
    """
    config, task, molecules = module.config, module.task, measured(data.part(part))
    wanted = config.training.baseline
    known = data.part("train") if wanted == "rf" else None
    baselines = baselines_of(wanted, task, module.statistics, part, molecules, known, config.seed)
    thresholds = {}
    if len(data.dataset.splits.get("val", ())):
        validation = measured(data.part("val"))
        thresholds = chosen_thresholds(task, predict_molecules(module, validation, config.dataset.batch_size), validation.targets)
    predictions = predict_molecules(module, molecules, config.dataset.batch_size)
    taken = predictions, molecules.targets, config.training.bootstrap, config.seed
    return compare(task, metrics, part, *taken, baselines, thresholds), predictions
