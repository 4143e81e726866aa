"""The page of the report about a classifier."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from molgcn.metrics import metric_title
from molgcn.metrics.classes import METRICS
from molgcn.report.drawings import draw
from molgcn.report.page import TargetGroup, TargetPart
from molgcn.report.sections import OF_CLASSES
from molgcn.report.sections.overview import overview
from molgcn.report.subject import Draw, Subject
from molgcn.report.views import ClassView

_TITLES = {"brier": "Brier", "accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "log_loss": "log loss"}


def class_group(subject: Subject, probabilities: Sequence[np.ndarray], titles: Sequence[Sequence[str]], draw: Draw = draw) -> TargetGroup:
    """Return the part of the page about targets that are classes.

    Args:
        subject: what the report is about.
        probabilities: for each target, the probabilities of class 1 [M] or of all classes [M, C].
        titles: for each target, the names of its C classes.
        draw: returns the drawing of a SMILES as a `data:` URL, or None where it cannot be drawn.
    """
    columns = zip(probabilities, titles, strict=True)
    views = [ClassView.of(subject, place, given, classes, draw) for place, (given, classes) in enumerate(columns)]
    parts = [TargetPart(view.name, "", [section(view) for section in OF_CLASSES]) for view in views]
    metrics = {metric: _TITLES.get(metric, metric_title(metric)) for metric in METRICS}
    return TargetGroup("probabilities measured", overview(subject, metrics), parts)
