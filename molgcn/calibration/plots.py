"""The pictures of the report's section about uncertainties."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes

from molgcn.calibration.confidence import confidence_bins
from molgcn.calibration.deviations import binned_deviations, covering_levels
from molgcn.report.charts import as_svg
from molgcn.report.plots import BLUE, GREY, ORANGE, new_figure, tidy

_SHOWN = 3_000  # with more molecules, further points would only make the file larger


def deviation_picture(error: np.ndarray, std: np.ndarray, calibrated: np.ndarray | None) -> str:
    """Draw the coverage of central intervals against their level, and the errors against the standard deviations.

    Args:
        error: [n], true minus predicted.
        std: [n], the predicted standard deviations.
        calibrated: [n], the calibrated standard deviations, or None.
    """
    drawn = [("predicted", std, GREY if calibrated is not None else BLUE)]
    if calibrated is not None:
        drawn.append(("calibrated", calibrated, BLUE))
    figure = new_figure(9.4, 4.5)
    held, against = figure.subplots(1, 2)
    for label, values, color in drawn:
        held.plot(covering_levels(error, values), np.arange(1, len(error) + 1) / len(error), color=color, linewidth=1.6, label=label)
    _diagonal(held, "level of the interval", "share of values that it holds")
    _, shown, color = drawn[-1]
    some = np.linspace(0, len(error) - 1, min(len(error), _SHOWN)).astype(np.int64)
    against.scatter(shown[some], np.abs(error[some]), s=7, color=color, alpha=0.35, linewidth=0, label="one molecule")
    against.plot(
        *binned_deviations(error, shown), color=ORANGE, marker="o", markersize=4, linewidth=1.4, label="root mean square of a tenth"
    )
    limit = [0, float(shown.max())]
    against.plot(limit, limit, color=GREY, linewidth=1.0, zorder=1)
    against.set(xlabel=f"{drawn[-1][0]} standard deviation", ylabel="|error|", xlim=(0, None), ylim=(0, None))
    against.legend(frameon=False, fontsize=8)
    tidy(against)
    return as_svg(figure)


def confidence_picture(labels: np.ndarray, probabilities: np.ndarray, calibrated: np.ndarray | None) -> str:
    """Draw the accuracy against the confidence, in ten bins of equal width.

    Args:
        labels: int [n], the true classes.
        probabilities: [n, C], the predicted probabilities.
        calibrated: [n, C], the calibrated probabilities, or None.
    """
    figure = new_figure(4.4, 4.5)
    axes = figure.subplots()
    for label, values, color in (("predicted", probabilities, GREY if calibrated is not None else BLUE), ("calibrated", calibrated, BLUE)):
        if values is not None:
            count, summed, correct = (one for one in confidence_bins(labels, values))
            there = count > 0
            axes.plot(summed[there] / count[there], correct[there] / count[there], color=color, marker="o", markersize=4, label=label)
    _diagonal(axes, "probability of the likeliest class", "share of molecules that are of it")
    return as_svg(figure)


def _diagonal(axes: Axes, x: str, y: str) -> None:
    axes.plot((0, 1), (0, 1), color=GREY, linewidth=1.0, linestyle="--", zorder=1)
    axes.set(xlabel=x, ylabel=y, xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), box_aspect=1)
    axes.legend(frameon=False, fontsize=8)
    tidy(axes)
