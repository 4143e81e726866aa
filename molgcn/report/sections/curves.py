"""The section with the ROC, precision-recall and calibration curves of a target with two classes."""

from __future__ import annotations

from markupsafe import Markup

from molgcn.report import class_plots
from molgcn.report.charts import as_svg
from molgcn.report.rendering import render
from molgcn.report.views import ClassView


def curves(view: ClassView) -> Markup:
    """Return one picture with the ROC, precision-recall and calibration curves."""
    if not view.binary or not len(view.index):
        return Markup("")
    picture = as_svg(class_plots.curves({view.name: (view.true, view.given)}, view.titles[1]))
    return render("sections/curves.html.jinja", picture=picture)
