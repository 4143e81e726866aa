"""The numbers of a target in large, beside the error of answering the mean."""

from __future__ import annotations

from markupsafe import Markup

from molgcn.report.rendering import render
from molgcn.report.views import NumberView


def number_summary(view: NumberView) -> Markup:
    """Return the tiles, or in words why there are none."""
    return render("sections/number_summary.html.jinja", errors=view.errors, unit=view.errors.unit, missing=view.missing)
