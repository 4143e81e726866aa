"""The report about a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from molgcn.metrics import metric_title
from molgcn.metrics.classes import METRICS
from molgcn.report.drawings import draw
from molgcn.report.page import TargetGroup, TargetPart, write_page
from molgcn.report.sections import OF_CLASSES
from molgcn.report.sections.overview import overview
from molgcn.report.subject import Draw, Subject
from molgcn.report.views import ClassView

_TITLES = {"brier": "Brier", "accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "log_loss": "log loss"}


def write_class_report(path: Path, subject: Subject, probabilities: Sequence[np.ndarray], draw: Draw = draw) -> None:
    """Write a page about targets that are classes; see :func:`class_group`."""
    write_page(path, subject, [class_group(subject, probabilities, draw)])


def class_group(subject: Subject, probabilities: Sequence[np.ndarray], draw: Draw = draw) -> TargetGroup:
    """Return what a page shows of targets that are classes.

    Args:
        subject: what it is about.
        probabilities: of each target, [M] of class 1, or [M, C].
        draw: gives the picture of a SMILES as an address, None where it cannot.
    """
    views = [ClassView.of(subject, place, given, draw) for place, given in enumerate(probabilities)]
    parts = [TargetPart(view.name, "", [section(view) for section in OF_CLASSES]) for view in views]
    titles = {metric: _TITLES.get(metric, metric_title(metric)) for metric in METRICS}
    return TargetGroup("probabilities measured", overview(subject, titles), parts)
