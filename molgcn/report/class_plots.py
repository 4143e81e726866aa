"""Pictures of predicted probabilities: ROC, precision-recall and calibration curves, and confusion matrices."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from molgcn.errors import counted
from molgcn.metrics import error_text
from molgcn.metrics.classes import class_metrics, confusion
from molgcn.report.plots import BLUE, GREY, new_figure, panels_of, plain, save_png, tidy

_LISTED = 4  # with more curves, a legend inside the panel would hide some
_BINS = 10
_WRITTEN = 12  # with more classes, the numbers do not fit into the cells
_LONGEST = 16  # characters; a longer class name would leave the picture no room


def plot_classes(
    targets: np.ndarray, probabilities: Sequence[np.ndarray], names: Sequence[str], path: Path, titles: Sequence[Sequence[str]]
) -> None:
    """Draw one line per target in three panels of curves, or one confusion matrix per target for more than two classes, as a PNG file.

    Targets are [M, T], NaN = missing, and each target's probabilities are of class 1 [M] or of all classes [M, C], which `titles` names.
    """
    known = {name: _known(labels, given) for name, labels, given in zip(names, targets.T, probabilities, strict=True)}
    if probabilities[0].ndim == 1:
        positive = {classes[1] for classes in titles}
        figure = curves(known, positive.pop() if len(positive) == 1 else "1")
    else:
        figure = _confusions(known, titles)
    save_png(figure, path)


def _known(labels: np.ndarray, given: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    there = ~np.isnan(labels) & np.isfinite(given.reshape(len(labels), -1)).all(axis=1)
    return labels[there].astype(np.int64), given[there]


def curves(known: Mapping[str, tuple[np.ndarray, np.ndarray]], positive: str) -> Figure:
    """Draw ROC, precision-recall and calibration curves of the true classes [n] and probabilities [n] of class 1 by target."""
    figure = new_figure(13.2, 4.6)
    panels = figure.subplots(1, 3)
    colors = [BLUE] if len(known) == 1 else mpl.colormaps["turbo"](np.linspace(0.05, 0.9, len(known)))
    for color, (name, (true, given)) in zip(colors, known.items(), strict=True):
        values = class_metrics(true.astype(float), given)
        if not math.isnan(values["roc_auc"]):
            _ranking(panels[0], panels[1], true, given, color, name, values)
        if len(true):
            _calibration(panels[2], true, given, color)
    binned = f"calibration, {_BINS} bins of as many molecules"
    for panel, title, x, y, corner in (
        (panels[0], "ROC", "false positive rate", "true positive rate", "lower right"),
        (panels[1], "precision and recall", "recall", "precision", "lower left"),
        (panels[2], binned, "predicted probability", f"share of class {plain(positive)}", "upper left"),
    ):
        if y != "precision":
            panel.plot((0, 1), (0, 1), color=GREY, linewidth=1.0, zorder=1)
        panel.set(xlabel=x, ylabel=y, xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), box_aspect=1)
        panel.set_title(title, fontsize=10)
        tidy(panel)
        if len(known) <= _LISTED and panel.get_legend_handles_labels()[0]:
            panel.legend(frameon=False, fontsize=8, loc=corner)
    if len(known) > _LISTED:
        figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, fontsize=8, loc="outside right center")
    return figure


def _ranking(roc: Axes, recall: Axes, true: np.ndarray, given: np.ndarray, color: object, name: str, values: Mapping[str, float]) -> None:
    from sklearn.metrics import precision_recall_curve, roc_curve

    area, precision = (error_text(values[metric]) for metric in ("roc_auc", "pr_auc"))
    roc.plot(*roc_curve(true, given)[:2], color=color, linewidth=1.4, label=f"{plain(name)}, area {area}")
    points = precision_recall_curve(true, given)
    recall.step(points[1], points[0], color=color, linewidth=1.4, where="post", label=f"{plain(name)}, average {precision}")


def _calibration(axes: Axes, true: np.ndarray, given: np.ndarray, color: object) -> None:
    parts = [part for part in np.array_split(np.argsort(given, kind="stable"), _BINS) if len(part)]
    means = [(given[part].mean(), true[part].mean()) for part in parts]
    axes.plot(*zip(*means, strict=True), color=color, linewidth=1.2, marker="o", markersize=4)


def _confusions(known: Mapping[str, tuple[np.ndarray, np.ndarray]], titles: Sequence[Sequence[str]]) -> Figure:
    figure, panels = panels_of(len(known), 4.4, 4.4)
    for panel, (name, (true, given)), classes in zip(panels, known.items(), titles, strict=True):
        confusion_panel(panel, confusion(true, given), plain(name), classes)
    return figure


def confusion_panel(axes: Axes, matrix: np.ndarray, name: str, titles: Sequence[str]) -> None:
    """Draw a confusion matrix [C, C] with the names of its C classes. A colour shows a cell's share of its row."""
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    if len(matrix) <= _WRITTEN:
        for (row, column), number in np.ndenumerate(matrix):
            axes.text(column, row, f"{number:,}", ha="center", va="center", color="white" if shares[row, column] > 0.5 else "black")
        shown = [plain(title if len(title) <= _LONGEST else f"{title[: _LONGEST - 1]}\N{HORIZONTAL ELLIPSIS}") for title in titles]
        slanted = max(map(len, shown)) > 3  # numbers stand upright
        axes.set_xticks(range(len(matrix)), shown, rotation=30 if slanted else 0, ha="right" if slanted else "center")
        axes.set_yticks(range(len(matrix)), shown)
    axes.set(xlabel="predicted class", ylabel="true class")
    axes.set_title(f"{name}\n{counted(int(matrix.sum()), 'molecule')}", fontsize=10)
