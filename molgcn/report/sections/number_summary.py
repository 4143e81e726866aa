"""The section with the main errors of a target, beside the error of always predicting the mean."""

from __future__ import annotations

from markupsafe import Markup

from molgcn.report.rendering import render
from molgcn.report.views import NumberView


def number_summary(view: NumberView) -> Markup:
    """Return the errors in large print, or a sentence why there are none."""
    return render("sections/number_summary.html.jinja", errors=view.errors, unit=view.errors.unit, missing=view.missing)
