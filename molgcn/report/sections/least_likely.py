"""The section that draws the molecules whose true class got the least probability."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from molgcn.metrics.classes import predicted_classes
from molgcn.report.rendering import number, render
from molgcn.report.subject import WORST
from molgcn.report.views import ClassView


def least_likely(view: ClassView) -> Markup:
    """Return the cards of the molecules whose true class got the least probability."""
    if not len(view.index):
        return Markup("")
    said, of_truth = predicted_classes(view.given, view.threshold), view.of_truth
    cards = [
        view.subject.drawn(int(view.index[place]), view.draw)
        | {
            "lines": {"true class": view.titles[view.true[place]], "predicted class": view.titles[said[place]]},
            "main": "probability of the true one",
            "value": number(float(of_truth[place])),
        }
        for place in np.argsort(of_truth, kind="stable")[:WORST].tolist()
    ]
    return render("sections/molecules.html.jinja", cards=cards, explained="Those whose true class got the least probability.")
