"""The part of the report about targets that are classes: one section per function, in the order of the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from molgcn.metrics import metric_title
from molgcn.metrics.classes import METRICS, THRESHOLD, class_metrics, confusion, predicted_classes
from molgcn.metrics.comparison import Threshold
from molgcn.report import class_plots
from molgcn.report.drawings import draw
from molgcn.report.page import TargetGroup, TargetPart, number, overview, render
from molgcn.report.plots import as_svg, new_figure, plain
from molgcn.report.subject import PARTS, WORST, Subject

_TITLES = {"brier": "Brier", "accuracy": "accuracy", "balanced_accuracy": "balanced accuracy", "log_loss": "log loss"}
_OF_DECISIONS = ("accuracy", "balanced_accuracy", "f1", "mcc")


@dataclass(frozen=True)
class ClassView:
    """What a section shows: a target whose values are classes."""

    subject: Subject  # what the page is about
    place: int  # the index of the target
    index: np.ndarray  # int64 [n], the molecules whose class is known and whose probabilities are finite
    true: np.ndarray  # int64 [n], the true classes of these molecules
    given: np.ndarray  # float64, the predicted probabilities of class 1 [n], or of all classes [n, C]
    titles: Sequence[str]  # the names of the C classes
    unpredicted: int  # number of molecules left out because a probability is not finite

    @classmethod
    def of(cls, subject: Subject, place: int, probabilities: np.ndarray, titles: Sequence[str]) -> ClassView:
        """Make the view of a target from its probabilities of class 1 [M], or of all classes [M, C]."""
        labels = subject.molecules.targets[:, place]
        known, finite = ~np.isnan(labels), np.isfinite(probabilities.reshape(len(labels), -1)).all(axis=1)
        index = np.flatnonzero(known & finite)
        given = probabilities[index].astype(np.float64)
        return cls(subject, place, index, labels[index].astype(np.int64), given, titles, int((known & ~finite).sum()))

    @property
    def name(self) -> str:
        return self.subject.names[self.place]

    @property
    def binary(self) -> bool:
        return self.given.ndim == 1

    @property
    def chosen(self) -> Threshold | None:
        """The threshold that was chosen on the validation part, or None."""
        return self.subject.comparison.thresholds.get(self.name)

    @property
    def threshold(self) -> float:
        return THRESHOLD if self.chosen is None else self.chosen.value


def class_group(subject: Subject, probabilities: Sequence[np.ndarray], titles: Sequence[Sequence[str]]) -> TargetGroup:
    """Return the part of the page about targets that are classes, with names `titles`, from the probabilities of each target.

    They are of class 1 [M] or of all classes [M, C].
    """
    columns = zip(probabilities, titles, strict=True)
    views = [ClassView.of(subject, place, given, classes) for place, (given, classes) in enumerate(columns)]
    parts = [TargetPart(view.name, "", [section(view) for section in SECTIONS]) for view in views]
    metrics = {metric: _TITLES.get(metric, metric_title(metric)) for metric in METRICS}
    return TargetGroup("probabilities measured", overview(subject, metrics), parts)


def _summary(view: ClassView) -> Markup:
    subject = view.subject
    sizes = np.bincount(view.true) if len(view.true) else np.zeros(1, int)
    counts = {
        PARTS[part]: (counts[view.place, : len(view.titles)].tolist(), subject.count(view.name, part) - int(counts[view.place].sum()))
        for part, counts in subject.class_counts.items()
        if counts.shape[1]
    }
    return render(
        "sections/class_summary.html.jinja",
        count=len(view.index),
        missing=subject.count(view.name) - len(view.index) - view.unpredicted,
        what=subject.what(view.name),
        unpredicted=view.unpredicted,
        found={metric: subject.metrics[f"{subject.part}/{metric}/{view.name}"] for metric in METRICS},
        commonest=float(sizes.max() / max(len(view.index), 1)),
        counts=counts,
        titles=view.titles,
    )


def _curves(view: ClassView) -> Markup:
    if not view.binary or not len(view.index):
        return Markup("")
    picture = as_svg(class_plots.curves({view.name: (view.true, view.given)}, view.titles[1]))
    return render("sections/curves.html.jinja", picture=picture)


def _decisions(view: ClassView) -> Markup:
    """Return the confusion matrix and, for two classes, the metrics at the chosen threshold and at 0.5."""
    if not len(view.index):
        return Markup("")
    figure = new_figure(4.4, 4.4)
    matrix = confusion(view.true, view.given, view.threshold)
    class_plots.confusion_panel(figure.subplots(), matrix, plain(view.name), view.titles)
    rows = {}
    for threshold in (THRESHOLD, view.threshold) if view.binary else ():
        found = class_metrics(view.true.astype(float), (view.given > threshold).astype(np.float64))
        rows[threshold] = [found[metric] for metric in _OF_DECISIONS]
    return render(
        "sections/decisions.html.jinja",
        picture=as_svg(figure),
        chosen=view.chosen,
        binary=view.binary,
        positive=view.titles[-1],
        rows=rows,
    )


def _least_likely(view: ClassView) -> Markup:
    if not len(view.index):
        return Markup("")
    every = np.stack([1 - view.given, view.given], axis=1) if view.binary else view.given
    of_truth = np.take_along_axis(every, view.true[:, None], axis=1)[:, 0]
    predicted = predicted_classes(view.given, view.threshold)
    cards = [
        view.subject.drawn(int(view.index[place]), draw)
        | {
            "lines": view.subject.number_line(view.name, int(view.index[place]))
            | {"true class": view.titles[view.true[place]], "predicted class": view.titles[predicted[place]]},
            "main": "probability of the true one",
            "value": number(float(of_truth[place])),
        }
        for place in np.argsort(of_truth, kind="stable")[:WORST].tolist()
    ]
    what, explained = view.subject.what(view.name), "Those whose true class got the least probability."
    return render("sections/molecules.html.jinja", cards=cards, explained=explained, what=what)


SECTIONS: tuple[Callable[[ClassView], Markup], ...] = (_summary, _curves, _decisions, _least_likely)
