"""The section with the errors by number of atoms."""

from __future__ import annotations

from markupsafe import Markup

from molgcn.data.featurizers import get_featurizer
from molgcn.report import charts
from molgcn.report.rendering import render
from molgcn.report.views import NumberView


def by_size(view: NumberView) -> Markup:
    """Return a picture of the mean absolute error of each range of sizes."""
    molecules = view.subject.molecules
    groups = view.errors.by_size(molecules.num_nodes_per_graph)
    if not groups:
        return Markup("")
    return render("sections/by_size.html.jinja", picture=charts.by_size(groups, view.errors, _label(molecules.features)))


def _label(features: str | None) -> str:
    if features is None:
        return "atoms in the molecule"
    return "atoms in the molecule, with hydrogens" if get_featurizer(features).hydrogens == "explicit" else "heavy atoms in the molecule"
