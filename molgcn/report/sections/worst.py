"""The section that draws the molecules with the largest errors."""

from __future__ import annotations

from markupsafe import Markup

from molgcn.report.rendering import number, render
from molgcn.report.subject import WORST
from molgcn.report.views import NumberView


def worst(view: NumberView) -> Markup:
    """Return the cards of the molecules with the largest errors."""
    errors, unit = view.errors, view.errors.unit
    cards = [
        view.subject.drawn(int(errors.index[place]), view.draw)
        | {
            "lines": {
                "true": number(float(errors.true[place]), errors.digits),
                "predicted": number(float(errors.predicted[place]), errors.digits),
            },
            "main": "error",
            "value": ("+" if errors.error[place] > 0 else "") + f"{number(float(errors.error[place]))} {unit}".rstrip(),
        }
        for place in errors.worst(WORST).tolist()
    ]
    return render("sections/molecules.html.jinja", cards=cards, explained="") if cards else Markup("")
