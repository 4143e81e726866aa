"""The part of the report about targets that are numbers: one section per function, in the order of the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from molgcn.data.featurizers import ReactionFeaturizer, get_featurizer
from molgcn.data.fingerprints import murcko_scaffolds
from molgcn.metrics import metric_title
from molgcn.metrics.regression import METRICS
from molgcn.report.analysis import LEAST, NO_RING, Errors, Group
from molgcn.report.drawings import draw
from molgcn.report.page import TargetGroup, TargetPart, number, overview, render
from molgcn.report.plots import BLUE, GREY, as_svg, new_figure, parity_panel, plain, tidy
from molgcn.report.subject import WORST, Subject

_TITLES = {"r2": "R\u00b2"}
_SCAFFOLDS = 12  # shown


@dataclass(frozen=True)
class NumberView:
    """What a section shows: a target whose values are numbers, and the scaffolds of the M molecules where they have SMILES."""

    subject: Subject
    errors: Errors
    scaffolds: Sequence[str] | None


def number_group(subject: Subject) -> TargetGroup:
    """Return the part of the page about targets that are numbers."""
    smiles, targets = subject.molecules.smiles, subject.molecules.targets.T
    scaffolds = None
    if smiles is not None:
        texts = list(dict.fromkeys(smiles))  # each atom with a value of its own repeats its molecule
        of_text = dict(zip(texts, murcko_scaffolds(texts), strict=True))
        scaffolds = [of_text[text] for text in smiles]
    columns = zip(subject.names, subject.units, targets, subject.predictions.T, strict=True)
    views = [NumberView(subject, Errors.of(*column), scaffolds) for column in columns]
    parts = [TargetPart(view.errors.name, view.errors.unit, [section(view) for section in SECTIONS]) for view in views]
    return TargetGroup("errors", overview(subject, {metric: _TITLES.get(metric, metric_title(metric)) for metric in METRICS}), parts)


def _summary(view: NumberView) -> Markup:
    errors = view.errors
    missing = view.subject.count(errors.name) - len(errors.index) - errors.unpredicted
    what = view.subject.what(errors.name)
    return render("sections/number_summary.html.jinja", errors=errors, unit=errors.unit, missing=missing, what=what)


def _parity(view: NumberView) -> Markup:
    if not len(view.errors.index):
        return Markup("")
    pictures = {
        "predicted against true values": _draw_parity(view.errors),
        "distribution of the errors": _draw_histogram(view.errors),
    }
    return render("sections/pictures.html.jinja", pictures=pictures)


def _by_size(view: NumberView) -> Markup:
    molecules = view.subject.molecules
    groups = view.errors.by_size(molecules.num_nodes_per_graph)
    if not groups:
        return Markup("")
    what = "atoms in the molecule"
    featurizer = None if molecules.features is None else get_featurizer(molecules.features)
    if isinstance(featurizer, ReactionFeaturizer):
        what = "atoms in the reaction"
    elif featurizer is not None:
        what = f"{what}, with hydrogens" if featurizer.hydrogens == "explicit" else f"heavy {what}"
    return render("sections/by_size.html.jinja", picture=_draw_by_size(groups, view.errors, what))


def _by_scaffold(view: NumberView) -> Markup:
    groups, rare = ([], None) if view.scaffolds is None else view.errors.by_scaffold(view.scaffolds)
    if not groups and rare is None:
        return Markup("")

    def card(group: Group) -> dict[str, Any]:
        ring = group.name != NO_RING
        share = min(group.mae / (2 * view.errors.mae or 1.0), 1.0)
        return {"group": group, "picture": draw(group.name) if ring else None, "ring": ring, "share": share}

    cards = [card(group) for group in groups[:_SCAFFOLDS]]
    unit, what = view.errors.unit, view.subject.what(view.errors.name)
    return render("sections/by_scaffold.html.jinja", cards=cards, num_groups=len(groups), rare=rare, unit=unit, least=LEAST, what=what)


def _worst(view: NumberView) -> Markup:
    errors, unit = view.errors, view.errors.unit

    def card(place: int) -> dict[str, Any]:
        true, predicted, error = (float(values[place]) for values in (errors.true, errors.predicted, errors.error))
        return view.subject.drawn(int(errors.index[place]), draw) | {
            "lines": view.subject.number_line(errors.name, int(errors.index[place]))
            | {"true": number(true, errors.digits), "predicted": number(predicted, errors.digits)},
            "main": "error",
            "value": ("+" if error > 0 else "") + f"{number(error)} {unit}".rstrip(),
        }

    cards = [card(place) for place in errors.worst(WORST).tolist()]
    return render("sections/molecules.html.jinja", cards=cards, explained="", what=view.subject.what(errors.name)) if cards else Markup("")


def _draw_parity(errors: Errors) -> str:
    figure = new_figure(4.4, 4.5)
    parity_panel(figure.subplots(), errors.true, errors.predicted, plain(errors.name), plain(errors.unit))
    return as_svg(figure)


def _draw_histogram(errors: Errors) -> str:
    """Draw a histogram of the errors. The largest one percent is counted in the outermost bars."""
    figure = new_figure(4.4, 4.5)
    axes = figure.subplots()
    error = errors.error
    limit = float(np.quantile(np.abs(error), 0.99)) or float(np.abs(error).max()) or 1.0
    axes.stairs(*np.histogram(error.clip(-limit, limit), bins=41, range=(-limit, limit)), fill=True, color=BLUE, alpha=0.85, linewidth=0)
    axes.axvline(0, color=GREY, linewidth=1.0)
    axes.set_xlabel(f"predicted \u2212 true {plain(errors.name)}" + (f" ({plain(errors.unit)})" if errors.unit else ""))
    axes.set_ylabel("molecules")
    shares = f"half within ±{errors.quantile(0.5):.3g}, 95 % within ±{errors.quantile(0.95):.3g}"
    beyond = int((np.abs(error) > limit).sum())
    clipped = f"{beyond:,} beyond ±{limit:.3g} in the outermost bars" if beyond else ""
    axes.set_title(f"{shares}\n{clipped}", fontsize=10)
    tidy(axes)
    return as_svg(figure)


def _draw_by_size(groups: Sequence[Group], errors: Errors, what: str) -> str:
    """Draw the mean absolute error of each range of sizes, with the number of molecules below it."""
    figure = new_figure(9.0, 3.3)
    axes = figure.subplots()
    places = np.arange(len(groups))
    axes.bar(places, [group.mae for group in groups], width=0.72, color=BLUE, alpha=0.85)
    axes.axhline(errors.mae, color=GREY, linewidth=1.2, linestyle="--", label=f"all molecules, {errors.mae:.3g}")
    axes.set_xticks(places, [f"{group.name}\nn = {group.count:,}" for group in groups], fontsize=9)
    axes.set_xlabel(what)
    axes.set_ylabel("MAE" + (f" ({plain(errors.unit)})" if errors.unit else ""))
    axes.legend(frameon=False, fontsize=9)
    tidy(axes)
    axes.grid(visible=False, axis="x")
    return as_svg(figure)


SECTIONS: tuple[Callable[[NumberView], Markup], ...] = (_summary, _parity, _by_size, _by_scaffold, _worst)
