"""The section with predicted against true values and the distribution of the errors."""

from __future__ import annotations

from markupsafe import Markup

from molgcn.report import charts
from molgcn.report.rendering import render
from molgcn.report.views import NumberView


def parity(view: NumberView) -> Markup:
    """Return a parity plot and a histogram of the errors."""
    if not len(view.errors.index):
        return Markup("")
    pictures = {
        "predicted against true values": charts.parity(view.errors),
        "distribution of the errors": charts.histogram(view.errors),
    }
    return render("sections/pictures.html.jinja", pictures=pictures)
