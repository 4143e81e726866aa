"""The section with the confusion matrix. For two classes it uses the threshold that was chosen on the validation part."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from molgcn.metrics.classes import THRESHOLD, class_metrics, confusion
from molgcn.report.charts import as_svg
from molgcn.report.class_plots import confusion_panel
from molgcn.report.plots import new_figure, plain
from molgcn.report.rendering import render
from molgcn.report.views import ClassView

_METRICS = ("accuracy", "balanced_accuracy", "f1", "mcc")


def decisions(view: ClassView) -> Markup:
    """Return the confusion matrix and, for two classes, the metrics at the chosen threshold and at 0.5."""
    if not len(view.index):
        return Markup("")
    figure = new_figure(4.4, 4.4)
    confusion_panel(figure.subplots(), confusion(view.true, view.given, view.threshold), plain(view.name), view.titles)
    thresholds = dict.fromkeys((THRESHOLD, view.threshold)) if view.binary else {}
    return render(
        "sections/decisions.html.jinja",
        picture=as_svg(figure),
        chosen=view.chosen,
        binary=view.binary,
        positive=view.titles[-1],
        rows={threshold: _at(view, threshold) for threshold in thresholds},
    )


def _at(view: ClassView, threshold: float) -> list[float]:
    """Compute the metrics of the classes predicted at a threshold."""
    found = class_metrics(view.true.astype(float), (view.given > threshold).astype(np.float64))
    return [found[metric] for metric in _METRICS]
