"""Plot a sweep: the best value run by run, and the value over every key that was varied."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from molgcn.report.plots import BLUE, GREY, ORANGE, new_figure, plain, save_png, tidy

_PANELS = 11  # most keys shown beside the history
_FEW = 5  # most values of a key that are each marked on its axis


@dataclass(frozen=True)
class Point:
    """One run of a sweep.

    Attributes:
        value: the value of the objective; None where there is none.
        params: the values of its overrides, by key.
        state: the state of the run; see :class:`molgcn.search.sweep.SweepRun`.
    """

    value: float | None
    params: Mapping[str, float | str]
    state: str = "complete"


def plot_sweep(
    points: Sequence[Point],
    path: Path,
    objective: str,
    *,
    maximize: bool = False,
    importances: Mapping[str, float] | None = None,
    logarithmic: Collection[str] | None = None,
) -> None:
    """Plot the values in the order of the runs, and in a panel for each varied key, the most important key first.

    Args:
        points: the runs.
        path: the PNG file to write.
        objective: the name of the values.
        maximize: whether more is better.
        importances: the importance of each key, which is shown beside its name.
        logarithmic: keys with a logarithmic axis. None chooses one where positive values span a factor of 10 or more.
    """
    shown = [(number, point) for number, point in enumerate(points) if point.value is not None and math.isfinite(point.value)]
    keys = [key for key in dict.fromkeys(key for point in points for key in point.params) if _varies(key, points)]
    keys.sort(key=lambda key: -(importances or {}).get(key, 0.0))
    keys = keys[:_PANELS]
    panels_wanted = len(keys) + 1
    columns = panels_wanted if panels_wanted <= 4 else min(math.ceil(panels_wanted / 2), 4)
    rows = math.ceil(panels_wanted / columns)
    figure = new_figure(3.6 * columns, 3.2 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel in panels[panels_wanted:]:
        panel.set_visible(False)
    _history(panels[0], shown, objective, maximize)
    for panel, key in zip(panels[1:], keys, strict=False):
        _slice(panel, shown, key, None if logarithmic is None else key in logarithmic)
        share = "" if importances is None or key not in importances else f", importance {importances[key]:.2f}"
        panel.set_title(plain(key) + share, fontsize=9)
    save_png(figure, path)


def _varies(key: str, points: Sequence[Point]) -> bool:
    return len({point.params.get(key) for point in points}) > 1


def _style(point: Point) -> dict:
    pruned = point.state == "pruned"
    return {"s": 22, "facecolor": "white" if pruned else BLUE, "edgecolor": GREY if pruned else BLUE, "zorder": 3}


def _history(axes: Axes, shown: Sequence[tuple[int, Point]], objective: str, maximize: bool) -> None:
    complete = [(number, point.value) for number, point in shown if point.state == "complete" and point.value is not None]
    for number, point in shown:
        axes.scatter(number, point.value, **_style(point))  # type: ignore[arg-type]
    if complete:
        numbers, values = np.array(complete).T
        best = np.maximum.accumulate(values) if maximize else np.minimum.accumulate(values)
        axes.step(
            [*numbers, max(numbers[-1], shown[-1][0])], [*best, best[-1]], where="post", color=ORANGE, linewidth=1.6, label="best so far"
        )
    if any(point.state == "pruned" for _, point in shown):
        axes.scatter([], [], label="pruned", **_style(Point(None, {}, "pruned")))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("run")
    axes.set_ylabel(plain(objective))
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=8)
    tidy(axes)


def _slice(axes: Axes, shown: Sequence[tuple[int, Point]], key: str, logarithmic: bool | None) -> None:
    values = [point.params.get(key, "-") for _, point in shown]
    if all(isinstance(value, float) for value in values):
        positions = [float(value) for value in values]
        if len(set(positions)) <= _FEW:
            axes.set_xticks(sorted(set(positions)))
        elif min(positions) > 0 and (max(positions) / min(positions) >= 10 if logarithmic is None else logarithmic):
            axes.set_xscale("log")
            axes.xaxis.set_major_locator(LogLocator(subs=(1, 3), numticks=6))
            axes.xaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        names = sorted({str(value) for value in values})
        positions = [float(names.index(str(value))) for value in values]
        axes.set_xticks(range(len(names)), [plain(name) for name in names])
        axes.set_xlim(-0.5, len(names) - 0.5)
    for position, (_, point) in zip(positions, shown, strict=True):
        axes.scatter(position, point.value, **_style(point))  # type: ignore[arg-type]
    tidy(axes)
