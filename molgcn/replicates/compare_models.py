"""Compare the metrics of a run of several trainings with baselines, intervals and thresholds."""

from __future__ import annotations

from collections.abc import Mapping

from molgcn.comparison.baselines import baselines_of
from molgcn.comparison.compare import chosen_thresholds, compare
from molgcn.config.run import Config
from molgcn.data.label_columns import measured
from molgcn.metrics.comparison import Comparison
from molgcn.replicates.predictions import Models


def compare_models(models: Models, part: str, metrics: Mapping[str, float], config: Config, one_split: bool) -> Comparison:
    """Compare the metrics of what all models predict together with baselines, and add intervals and metrics at chosen thresholds.

    Args:
        models: the run's models.
        part: the part whose metrics are compared.
        metrics: the metrics, by "<part>/<metric>/<target>".
        config: the run's configuration.
        one_split: whether the models share one split. Without it no molecules are training or validation for all models, so that there
            are no baselines and no thresholds.
    """
    task, batch_size = models.task, config.dataset.batch_size
    found, predictions = models.average(part, batch_size)
    molecules = measured(models.molecules[found])
    baselines, thresholds = {}, {}
    if one_split:
        wanted = config.training.baseline
        known = models.molecules[models.splits[0]["train"]] if wanted == "rf" else None
        baselines = baselines_of(wanted, task, models.modules[0].statistics, part, molecules, known, config.seed)
    if one_split and len(models.splits[0]["val"]):
        validation, given = models.average("val", batch_size)
        thresholds = chosen_thresholds(task, given, measured(models.molecules[validation]).targets)
    return compare(task, metrics, part, predictions, molecules.targets, config.training.bootstrap, config.seed, baselines, thresholds)
