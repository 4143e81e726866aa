"""The report about a classifier: metrics, curves or confusions, and the molecules whose class it thought least likely."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from molgcn.metrics import metric_title
from molgcn.metrics.classes import METRICS, confusion, predicted_classes
from molgcn.report.charts import as_svg
from molgcn.report.class_plots import confusion_panel, curves
from molgcn.report.drawings import draw
from molgcn.report.page import WORST, Draw, Subject, drawn, write_page
from molgcn.report.plots import new_figure, plain

_ABBREVIATIONS = ("roc_auc", "pr_auc", "f1", "mcc")


def write_class_report(path: Path, subject: Subject, probabilities: Sequence[np.ndarray], draw: Draw = draw) -> None:
    """Write the page.

    Args:
        path: the file.
        subject: what it is about.
        probabilities: of each target, [M] of class 1, or [M, C].
        draw: gives the picture of a SMILES as an address, None where it cannot.
    """
    columns = zip(subject.names, subject.molecules.targets.T, probabilities, strict=True)
    targets = [_target(name, labels, given, subject, draw) for name, labels, given in columns]
    write_page(path, "class_page.html.jinja", subject, targets, {metric: _title(metric) for metric in METRICS}, has_units=False)


def _target(name: str, labels: np.ndarray, given: np.ndarray, subject: Subject, draw: Draw) -> dict[str, Any]:
    finite = np.isfinite(given.reshape(len(labels), -1)).all(axis=1)
    index = np.flatnonzero(~np.isnan(labels) & finite)
    true, shown = labels[index].astype(np.int64), given[index]
    of_truth = np.where(true == 1, shown, 1 - shown) if given.ndim == 1 else np.take_along_axis(shown, true[:, None], axis=1)[:, 0]
    said = predicted_classes(shown) if len(index) else true
    worst = [
        drawn(subject.molecules, int(index[place]), draw)
        | {"true": int(true[place]), "said": int(said[place]), "given": float(of_truth[place])}
        for place in np.argsort(of_truth, kind="stable")[:WORST].tolist()
    ]
    matrix = confusion(true, shown)
    return {
        "name": name,
        "count": len(index),
        "missing": int(np.isnan(labels).sum()),
        "unpredicted": int((~np.isnan(labels) & ~finite).sum()),
        "values": {metric: subject.metrics[f"{subject.part}/{metric}/{name}"] for metric in METRICS},
        "classes": matrix.sum(axis=1).tolist(),
        "commonest": float(matrix.sum(axis=1).max() / max(len(index), 1)),
        "curves": as_svg(curves({name: (true, shown)})) if given.ndim == 1 and len(index) else None,
        "confusion": _picture(matrix, name) if len(index) else None,
        "worst": worst,
    }


def _title(metric: str) -> str:
    return metric_title(metric) if metric in _ABBREVIATIONS else metric.replace("_", " ")


def _picture(matrix: np.ndarray, name: str) -> str:
    figure = new_figure(4.4, 4.4)
    confusion_panel(figure.subplots(), matrix, plain(name))
    return as_svg(figure)
