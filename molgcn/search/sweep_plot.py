"""Plot a sweep: the best value run by run, and the value over every key that was varied."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from molgcn.report.plots import BLUE, GREY, ORANGE, new_figure, plain, save_png, tidy

if TYPE_CHECKING:
    from molgcn.search.sweep import SweepRun

_PANELS = 11  # most keys shown beside the history
_FEW = 5  # most values of a key that are each marked on its axis


def plot_sweep(
    runs: Sequence[SweepRun],
    path: Path,
    objective: str,
    *,
    maximize: bool = False,
    importances: Mapping[str, float] | None = None,
    logarithmic: Collection[str] | None = None,
) -> None:
    """Plot the values in the order of the runs, and in a panel for each varied key, the most important key first.

    Importances are shown beside the keys. Keys have a logarithmic axis where `logarithmic` names them, or, if it is None, where positive
    values span a factor of 10 or more.
    """
    shown = [(number, run) for number, run in enumerate(runs) if run.value is not None and math.isfinite(run.value)]
    params = [run.params for run in runs]
    keys = [key for key in dict.fromkeys(chain(*params)) if len({one.get(key) for one in params}) > 1]
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


def _style(state: str) -> dict[str, Any]:
    pruned = state == "pruned"
    return {"s": 22, "facecolor": "white" if pruned else BLUE, "edgecolor": GREY if pruned else BLUE, "zorder": 3}


def _history(axes: Axes, shown: Sequence[tuple[int, SweepRun]], objective: str, maximize: bool) -> None:
    complete = [(number, run.value) for number, run in shown if run.state == "complete" and run.value is not None]
    for number, run in shown:
        axes.scatter(number, run.value, **_style(run.state))  # type: ignore[arg-type]
    if complete:
        numbers, values = np.array(complete).T
        best = np.maximum.accumulate(values) if maximize else np.minimum.accumulate(values)
        axes.step(
            [*numbers, max(numbers[-1], shown[-1][0])], [*best, best[-1]], where="post", color=ORANGE, linewidth=1.6, label="best so far"
        )
    if any(run.state == "pruned" for _, run in shown):
        axes.scatter([], [], label="pruned", **_style("pruned"))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("run")
    axes.set_ylabel(plain(objective))
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=8)
    tidy(axes)


def _slice(axes: Axes, shown: Sequence[tuple[int, SweepRun]], key: str, logarithmic: bool | None) -> None:
    values = [run.params.get(key, "-") for _, run in shown]
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
    for position, (_, run) in zip(positions, shown, strict=True):
        axes.scatter(position, run.value, **_style(run.state))  # type: ignore[arg-type]
    tidy(axes)
