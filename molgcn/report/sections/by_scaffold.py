"""The section with the errors by Bemis-Murcko scaffold, for scaffolds that several molecules share."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from molgcn.report.analysis import LEAST, NO_RING, Group
from molgcn.report.rendering import render
from molgcn.report.views import NumberView

_SHOWN = 12


def by_scaffold(view: NumberView) -> Markup:
    """Return the cards of the most common scaffolds, and the error of the molecules with rare scaffolds."""
    groups, rare = ([], None) if view.scaffolds is None else view.errors.by_scaffold(view.scaffolds)
    if not groups and rare is None:
        return Markup("")
    cards = [_card(group, view) for group in groups[:_SHOWN]]
    return render("sections/by_scaffold.html.jinja", cards=cards, num_groups=len(groups), rare=rare, unit=view.errors.unit, least=LEAST)


def _card(group: Group, view: NumberView) -> dict[str, Any]:
    ring = group.name != NO_RING
    share = min(group.mae / (2 * view.errors.mae or 1.0), 1.0)
    return {"group": group, "picture": view.draw(group.name) if ring else None, "ring": ring, "share": share}
