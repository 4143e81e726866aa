"""Whether errors are as large as the model says they may be."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from molgcn.metrics.regression import regression_metrics
from molgcn.report import charts
from molgcn.report.rendering import render
from molgcn.report.views import NumberView

_FEW = 10  # molecules below which bins of them say nothing


def uncertainty(view: NumberView) -> Markup:
    """Return the picture of errors against predicted standard deviations, and how they go together."""
    if view.spread is None:
        return Markup("")
    spread, error = view.spread[view.errors.index].astype(np.float64), np.abs(view.errors.error)
    known = np.isfinite(spread)
    if known.sum() < _FEW:
        return Markup("")
    spread, error = spread[known], error[known]
    return render(
        "sections/uncertainty.html.jinja",
        picture=charts.uncertainty(spread, error, view.errors),
        spearman=float(regression_metrics(spread[:, None], error[:, None], ("spearman",))["spearman"][0, 0]),
        within=[float((error <= factor * spread).mean()) for factor in (1, 2)],
        count=len(spread),
        left_out=int((~known).sum()),
    )
