"""The report's section about uncertainties: its measures and its pictures."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes

from molgcn.calibration.assessment import measures_of
from molgcn.calibration.calibration import Calibration, TargetCalibration
from molgcn.calibration.measures import binned_deviations, confidence_bins, covering_levels
from molgcn.calibration.outputs import Numbers, Output, outputs_of
from molgcn.report.plots import BLUE, GREY, ORANGE, as_svg, new_figure, tidy
from molgcn.report.subject import Uncertainty
from molgcn.tasks.base import Task

_SHOWN = 3_000  # with more molecules, further points would only make the file larger


def uncertainty_of(
    task: Task, calibration: Calibration | None, metrics: Mapping[str, float], part: str, predictions: np.ndarray, targets: np.ndarray
) -> Uncertainty | None:
    """Return the content of the section about a part with predictions [M, P] and true values [M, T], NaN where missing.

    It is None where there are no uncertainties.
    """
    measures = {name: found for name in task.names if (found := measures_of(metrics, part, name))}
    if not measures:
        return None
    fitted = [None] * len(task.names) if calibration is None else calibration.targets
    pictures = {}
    for name, output, true, target in zip(task.names, outputs_of(task, predictions), targets.T, fitted, strict=True):
        if (picture := _picture(output, true, target)) is not None:
            pictures[name] = picture
    return Uncertainty(
        "" if calibration is None else calibration.described,
        calibration is not None and calibration.approximate,
        calibration.alpha if calibration is not None and any(target.conformal is not None for target in calibration.targets) else None,
        measures,
        pictures,
    )


def _picture(output: Output, true: np.ndarray, target: TargetCalibration | None) -> str | None:
    known = ~np.isnan(true) & output.finite
    seen, true = output[known], true[known].astype(np.float64)
    if not len(true):
        return None
    if isinstance(seen, Numbers):
        return None if seen.std is None else _deviation_picture(true - seen.values, seen.std, None if target is None else target.std(seen))
    return _confidence_picture(true.astype(np.int64), seen.probabilities, None if target is None else target.probabilities(seen))


def _deviation_picture(error: np.ndarray, std: np.ndarray, calibrated: np.ndarray | None) -> str:
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


def _confidence_picture(labels: np.ndarray, probabilities: np.ndarray, calibrated: np.ndarray | None) -> str:
    figure = new_figure(4.4, 4.5)
    axes = figure.subplots()
    for label, values, color in (("predicted", probabilities, GREY if calibrated is not None else BLUE), ("calibrated", calibrated, BLUE)):
        if values is not None:
            count, summed, correct = confidence_bins(labels, values)
            there = count > 0
            axes.plot(summed[there] / count[there], correct[there] / count[there], color=color, marker="o", markersize=4, label=label)
    _diagonal(axes, "probability of the likeliest class", "share of molecules that are of it")
    return as_svg(figure)


def _diagonal(axes: Axes, x: str, y: str) -> None:
    axes.plot((0, 1), (0, 1), color=GREY, linewidth=1.0, linestyle="--", zorder=1)
    axes.set(xlabel=x, ylabel=y, xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), box_aspect=1)
    axes.legend(frameon=False, fontsize=8)
    tidy(axes)
