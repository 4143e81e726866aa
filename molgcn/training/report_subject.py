"""Assemble what a report is about, for a training, a run of several trainings, and an evaluation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from molgcn.calibration.calibration import Calibration
from molgcn.calibration.section import uncertainty_of
from molgcn.comparison.compare import class_counts
from molgcn.data.label_columns import measured
from molgcn.data.packed import PackedMolecules
from molgcn.metrics.comparison import Comparison
from molgcn.report.facts import facts
from molgcn.report.subject import Subject, Trainings
from molgcn.training.module import MoleculeModule
from molgcn.training.provenance import versions


def assemble_subject(
    module: MoleculeModule,
    *,
    name: str,
    source: str,
    data_hash: str,
    where: Path,
    parts: Mapping[str, PackedMolecules],
    part: str,
    predictions: np.ndarray,
    metrics: Mapping[str, float],
    comparison: Comparison,
    calibration: Calibration | None,
    pictures: Mapping[str, Path] | None = None,
    trained_on: Mapping[str, int] | None = None,
    trainings: Trainings | None = None,
) -> Subject:
    """Assemble what a report is about.

    Args:
        module: The module, or one of several that predict together, for the facts about the model.
        name: The name of the run or checkpoint.
        source: The name of the molecules' source.
        data_hash: The hash of the data.
        where: The checkpoint or the run's folder.
        parts: The molecules of each part that has metrics.
        part: The part that the page shows in detail.
        predictions: The predictions [M, P] for that part's molecules.
        metrics: The metrics by "<part>/<metric>/<target>".
        comparison: The intervals, baselines, means and thresholds beside the metrics.
        calibration: The calibration of the predictions, or None.
        pictures: Further PNG files to show, by caption.
        trained_on: By part, the number of molecules that the model was trained on although the part is not its training part.
        trainings: The trainings of a run of several, or None.
    """
    task = module.task
    exact = {one: measured(molecules) for one, molecules in parts.items()}
    return Subject(
        title=f"{name} on {source}",
        facts=facts(module, source, data_hash, str(where), versions()),
        metrics=metrics,
        sizes={one: len(molecules) for one, molecules in parts.items()},
        labels={one: molecules.num_labels for one, molecules in exact.items()},
        class_counts={one: class_counts(task, molecules.targets) for one, molecules in exact.items()},
        part=part,
        molecules=exact[part],
        predictions=predictions,
        names=task.names,
        units=task.units,
        pictures=pictures or {},
        trained_on=trained_on or {},
        comparison=comparison,
        trainings=trainings,
        uncertainty=uncertainty_of(task, calibration, metrics, part, predictions, exact[part].targets),
    )
