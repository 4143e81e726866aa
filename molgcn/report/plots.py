"""The pictures of a run, its learning curve and its parity plot, and what all pictures share."""

from __future__ import annotations

import base64
import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter, StrMethodFormatter

from molgcn.errors import counted
from molgcn.files.whole_file import whole
from molgcn.metrics import error_text, errors_of

BLUE, ORANGE, GREY = "#1f6fb4", "#d1632a", "#9aa0a6"
_CROWDED = 3_000  # with more molecules, points hide one another; hexagons then show how many there are by their colour
_NOISY = 200  # with more values, a running mean is drawn over the loss


def new_figure(width: float, height: float) -> Figure:
    """Make a figure that needs no display. Width and height are in inches."""
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def panels_of(count: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """Make a figure of panels, up to four side by side, of a width and height in inches each."""
    columns = min(count, 4)
    rows = math.ceil(count / columns)
    figure = new_figure(width * columns, height * rows)
    panels = figure.subplots(rows, columns, squeeze=False).ravel()
    for panel in panels[count:]:
        panel.set_visible(False)
    return figure, list(panels[:count])


def save_png(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG file."""
    with whole(path) as temporary:
        figure.savefig(temporary, format="png", bbox_inches="tight", pad_inches=0.12)


def as_svg(figure: Figure) -> str:
    """Return a figure as a `data:` URL of an SVG picture; see :func:`embedded`. Text is drawn as paths, so that no font is needed."""
    file = io.BytesIO()
    with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": "molgcn"}):
        figure.savefig(file, format="svg", bbox_inches="tight", pad_inches=0.08, metadata={"Date": None, "Creator": None})
    return embedded(file.getvalue(), "image/svg+xml")


def embedded(content: bytes, kind: str) -> str:
    """Return a picture as the URL `data:<kind>;base64,...`. Browsers run no script in such a picture."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def tidy(axes: Axes) -> None:
    """Give axes a light grid and no box."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)


def plain(text: str) -> str:
    """Return text for a picture, with dollar signs escaped since they would start a formula."""
    return text.replace("$", r"\$")


def plot_learning_curve(metrics_csv: Path, path: Path, label: str, monitor: str = "val/loss", maximize: bool = False) -> None:
    """Draw the training and validation losses of a run's `metrics.csv` against the epochs into a file.

    Each training loss is the mean of its epoch. The best validation by the column `monitor` is marked. `label` is that of the y axis.
    """
    table = _read_columns(metrics_csv, {"epoch", "step", "train/loss", "val/loss", monitor})
    steps_per_epoch = _steps_per_epoch(table)
    curves = loss_curves(table)
    figure = new_figure(6.4, 4.0)
    axes = figure.subplots()
    for column, color, part in (("train/loss", ORANGE, "training"), ("val/loss", BLUE, "validation")):
        step, loss = curves[column].T
        marker = "o" if len(step) < 3 else None
        if len(step) > _NOISY:
            axes.plot(step / steps_per_epoch, loss, color=color, linewidth=0.8, alpha=0.25)
            loss = _running_mean(loss, len(loss) // 50)
        axes.plot(step / steps_per_epoch, loss, color=color, linewidth=1.6, label=part, marker=marker, markersize=4)
    validated = _finite(table, "step", "val/loss", monitor)
    if len(validated):
        step, loss, value = validated[validated[:, 2].argmax() if maximize else validated[:, 2].argmin()]
        best = f"best {'validation' if monitor == 'val/loss' else plain(monitor)}, {value:.3g}"
        axes.scatter(step / steps_per_epoch, loss, s=42, color=BLUE, edgecolor="white", zorder=3, label=best)
    values = np.concatenate([curve[:, 1] for curve in curves.values()])
    if len(values) and values.min() > 0:
        _log_scale(axes, values.max() / values.min())
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("epochs trained")
    axes.set_ylabel(label)
    axes.legend(frameon=False)
    tidy(axes)
    save_png(figure, path)


def _read_columns(path: Path, names: Iterable[str]) -> dict[str, np.ndarray]:
    """Return columns of numbers of a CSV file, NaN where a cell is empty."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        places = {name: place for place, name in enumerate(next(rows)) if name in names}
        cells = [[row[place] or "nan" for place in places.values()] for row in rows]
    return dict(zip(places, np.array(cells, float).reshape(-1, len(places)).T, strict=True))


def loss_curves(table: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return steps and losses float64 [n, 2] of "train/loss", the mean of an epoch at its last step, and of "val/loss"."""
    epoch, step, loss = _finite(table, "epoch", "step", "train/loss").T
    weight = np.diff(step, prepend=0).clip(min=1)  # the steps that a row is the mean of
    epochs, place = np.unique(epoch, return_inverse=True)
    last = np.zeros(len(epochs))
    np.maximum.at(last, place, step)
    means = np.bincount(place, loss * weight, len(epochs)) / np.bincount(place, weight, len(epochs))
    return {"train/loss": np.column_stack([last, means]), "val/loss": _finite(table, "step", "val/loss")}


def _finite(table: Mapping[str, np.ndarray], *names: str) -> np.ndarray:
    """Return the rows float64 [n, C] of C columns in which all numbers are finite."""
    values = np.column_stack([table[name] for name in names])
    return values[np.isfinite(values).all(axis=1)]


def _running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Return the mean of the values around each one, of fewer at both ends."""
    sums, places = np.append(0.0, values.cumsum()), np.arange(len(values))
    first, last = (places - window // 2).clip(min=0), (places + (window + 1) // 2).clip(max=len(values))
    return (sums[last] - sums[first]) / (last - first)


def _steps_per_epoch(table: Mapping[str, np.ndarray]) -> float:
    """Return the optimizer steps per epoch: the step of the last row divided by the epochs completed by then."""
    rows = _finite(table, "epoch", "step")
    return max(float(rows[-1, 1] / (rows[-1, 0] + 1)), 1.0) if len(rows) else 1.0


def _log_scale(axes: Axes, span: float) -> None:
    axes.set_yscale("log")
    subs = (1, 2, 3, 4, 5, 6, 7, 8, 9) if span < 4 else (1, 2, 5)
    axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def plot_parity(targets: np.ndarray, predictions: np.ndarray, names: Sequence[str], units: Sequence[str], path: Path) -> None:
    """Draw predicted against true values [M, T], one panel per target. Missing values (NaN) are left out."""
    figure, panels = panels_of(len(names), 4.0, 4.2)
    for i, (name, unit) in enumerate(zip(names, units, strict=True)):
        known = ~np.isnan(targets[:, i])
        true, predicted = (values[known, i].astype(np.float64) for values in (targets, predictions))
        parity_panel(panels[i], true, predicted, plain(name), plain(unit))
    save_png(figure, path)


def parity_panel(axes: Axes, true: np.ndarray, predicted: np.ndarray, name: str, unit: str) -> None:
    """Draw predicted against true values [n], none of them missing, with MAE and R2 as the title."""
    label = name + (f" ({unit})" if unit else "")
    axes.set_xlabel(f"true {label}")
    axes.set_ylabel(f"predicted {label}")
    tidy(axes)
    finite = np.isfinite(predicted)
    if not finite.any():
        axes.set_title("no values" if len(true) == 0 else "no finite predictions", fontsize=10)
        return
    mae, _, r2 = (error_text(value) for (value,) in errors_of(predicted[:, None], true[:, None]).values())
    axes.set_title(f"MAE {mae} {unit}".rstrip() + f", R² {r2}\n{counted(len(true), 'molecule')}", fontsize=10)
    true, predicted = true[finite], predicted[finite]
    low, high = float(min(true.min(), predicted.min())), float(max(true.max(), predicted.max()))
    margin = 0.04 * (high - low) or 1.0
    limits = (low - margin, high + margin)
    axes.plot(limits, limits, color=GREY, linewidth=1.0, zorder=3)
    if len(true) > _CROWDED:
        hexagons: dict[str, Any] = {"gridsize": 80, "bins": "log", "mincnt": 1, "cmap": "viridis", "linewidths": 0.1}
        axes.hexbin(true, predicted, extent=(*limits, *limits), zorder=2, rasterized=True, **hexagons)
    else:
        axes.scatter(true, predicted, s=9, alpha=0.45, color=BLUE, linewidths=0, zorder=2, rasterized=True)
    axes.set(xlim=limits, ylim=limits, box_aspect=1)
