"""Plots of a comparison: speed-up over depth and batch size, the parts of a step's time, and losses over time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

from molgcn.report.plots import BLUE, GREY, ORANGE, new_figure, plain, tidy
from molgcn_benchmark.report import network, same_size
from molgcn_benchmark.results import Results, Row

_WORKS = {"forward": "inference", "forward_backward": "forward and backward", "step": "step with Adam"}
_SPLIT = {"data": "#7a6bb0", "forward": "#1f6fb4", "backward": "#5aa7d6", "optimiser": "#d1632a", "the loop and the rest": "#b9bec4"}
_OTHERS: dict[str, dict[str, Any]] = {
    "pyg_hoisted": {"marker": "o", "markersize": 2.5, "linestyle": ":", "linewidth": 1.3},
    "pyg_compiled": {"marker": "x", "markersize": 4.5, "linestyle": "none"},
}
_SIDES = {"pyg": (ORANGE, "PyG"), "fused": (BLUE, "fused")}


def write_plots(results: Results) -> list[Path]:
    """Write every plot that the folder has rows for, and return the paths."""
    rows = {name: table.rows for name, table in results.tables.items()}
    steps, epochs, learning = (rows.get(name, []) for name in ("steps", "epochs", "learning"))
    figures = {
        "speedup_depth": _speedup(steps, "num_layers", "batch_size", "layers", lambda value: f"B = {value:,}"),
        "speedup_batch": _speedup(steps, "batch_size", "num_layers", "molecules per batch", lambda value: f"L = {value}"),
        "time_split": _time_split(steps, epochs),
        "loss_curves": _losses(learning),
    }
    paths = []
    for name, figure in figures.items():
        if figure is not None:
            paths.append(results.folder / f"{name}.png")
            figure.savefig(paths[-1], bbox_inches="tight", pad_inches=0.12)
    return paths


def _groups(rows: Iterable[Row], *names: str) -> list[list[Row]]:
    """Return the rows in groups that agree in these columns."""

    def key(row: Row) -> list[str]:
        return [str(row[name]).rjust(12) for name in names]  # sorts numbers by size

    return [list(group) for _, group in groupby(sorted(rows, key=key), key)]


def _speedup(rows: Sequence[Row], x: str, lines: str, label: str, name: Callable[[Any], str]) -> Figure | None:
    """Plot the speed-up over PyG against `x`, with a line for each value of `lines`.

    Each kind of work has a panel, and each data set and network a row of panels.
    """
    rows = [row for row in rows if row["against_pyg"] is not None and row["work"] in _WORKS]
    sets = [group for group in _groups(rows, "dataset", "hidden_channels", "norm") if len({row[x] for row in group}) > 1]
    works = [work for work in _WORKS if any(row["work"] == work for group in sets for row in group)]
    if not works:
        return None
    figure = new_figure(3.9 * len(works) + 1.4, 3.3 * len(sets) + 0.3)
    panels = figure.subplots(len(sets), len(works), squeeze=False, sharex=True)
    values = sorted({row[lines] for group in sets for row in group})
    shades = matplotlib.colormaps["viridis"](np.linspace(0.12, 0.82, len(values))) if len(values) > 1 else [BLUE]
    compared, compiled = (any(_against(row, name) for group in sets for row in group) for name in ("pyg_hoisted", "pyg_compiled"))
    for group, line_of_panels in zip(sets, panels, strict=True):
        for work, axes in zip(works, line_of_panels, strict=True):
            for value, shade in zip(values, shades, strict=True):
                found = sorted((row for row in group if row[lines] == value and row["work"] == work), key=lambda row: row[x])
                places = [row[x] for row in found]
                axes.plot(places, [row["against_pyg"] for row in found], color=shade, marker="o", markersize=4)
                for other, style in _OTHERS.items():
                    axes.plot(places, [_against(row, other) for row in found], color=shade, **style)
            axes.set_title(_WORKS[work], fontsize=10)
            axes.axhline(1, color=GREY, linewidth=1.0)
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
            _places(axes, sorted({row[x] for row in group}), log=x == "batch_size")
            tidy(axes)
        line_of_panels[0].set_ylabel(f"{plain(group[0]['dataset'])}, {network(group[0])}")
    for axes in panels[-1]:
        axes.set_xlabel(label)
    legend = zip(values, shades, strict=True)
    handles = [Line2D([], [], color=shade, marker="o", markersize=4, label=name(value)) for value, shade in legend]
    figure.legend(handles=handles, loc="outside right upper", frameon=False, fontsize=9)
    also = [text for shown, text in ((compared, "dotted: with the normalisation hoisted"), (compiled, "crosses: compiled")) if shown]
    figure.suptitle(f"times faster than PyG ({', '.join(['solid: as written', *also])})", fontsize=11)
    return figure


def _against(row: Row, variant: str) -> float | None:
    """Return the speed-up over a variant of PyG, or None where that was not measured."""
    if row.get(f"{variant}_ms") is None or row.get("pyg_ms") is None:
        return None
    return row["against_pyg"] * row[f"{variant}_ms"] / row["pyg_ms"]


def _places(axes: Axes, values: Sequence[int], log: bool) -> None:
    if log:
        axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator(values))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.tick_params(axis="x", labelsize=8)


def split_of_step(epoch: Row, steps: Iterable[Row]) -> dict[str, float] | None:
    """Return the milliseconds of a step's parts: waiting for data, forward, backward, optimiser, and the rest, which is the loop's.

    Args:
        epoch: a row of `epochs`.
        steps: rows of `steps`.

    Returns:
        Milliseconds by part, or None if `steps` has no row of this size.
    """
    times = {row["work"]: row for row in steps if same_size(row, epoch)}
    names = ("fused_captured", "fused") if epoch["backend"] == "fused" else ("pyg",)
    parts = ("training_forward", "forward_backward", "step")
    column = next((f"{name}_ms" for name in names if all(times.get(part, {}).get(f"{name}_ms") is not None for part in parts)), None)
    if column is None:
        return None
    forward, both, step = (times[part][column] for part in parts)
    split = {"data": epoch["step_ms"] * epoch["data_wait"], "forward": forward, "backward": max(both - forward, 0.0)}
    split["optimiser"] = max(step - both, 0.0)
    return split | {"the loop and the rest": max(epoch["step_ms"] - sum(split.values()), 0.0)}


def _time_split(steps: Sequence[Row], epochs: Sequence[Row]) -> Figure | None:
    """Plot the parts of a training step inside the Trainer, with a bar for each configuration and backend."""
    bars = []
    for group in _groups(epochs, "dataset", "hidden_channels", "norm", "num_layers", "batch_size"):
        for row in sorted(group, key=lambda row: row["backend"], reverse=True):
            split = split_of_step(row, steps)
            if split is not None and (row["backend"], row["loader"]) in (("fused", "packed"), ("pyg", "pyg")):
                bars.append((row, split))
    if not bars:
        return None
    figure = new_figure(8.4, 1.3 + 0.55 * len(bars))
    axes = figure.subplots()
    for place, (row, split) in enumerate(bars):
        left, total = 0.0, sum(split.values())
        for part, value in split.items():
            share = value / total
            axes.barh(place, share, left=left, color=_SPLIT[part], height=0.68, label=part if place == 0 else None)
            if share > 0.045:
                axes.text(left + share / 2, place, f"{share:.0%}", ha="center", va="center", color="white", fontsize=8)
            left += share
        axes.text(1.012, place, f"{row['step_ms']:.3g} ms per step", va="center", fontsize=9)
    labels = [f"{_SIDES[row['backend']][1]}, {plain(row['dataset'])} L={row['num_layers']} B={row['batch_size']:,}" for row, _ in bars]
    axes.set_yticks(range(len(bars)), labels)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.0%}"))
    axes.set_xlabel("share of a training step inside the Trainer")
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(left=False)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside upper center", ncols=5, frameon=False, fontsize=9)
    return figure


def _losses(rows: Sequence[Row]) -> Figure | None:
    """Plot validation and training loss of both backends over epochs, and validation loss over wall time."""
    runs = _groups(rows, "dataset", "hidden_channels", "norm", "num_layers", "batch_size", "epochs", "lr")
    if not runs:
        return None
    figure = new_figure(10.4, 3.7 * len(runs) + 0.2)
    panels = figure.subplots(len(runs), 2, squeeze=False)
    for group, (over_epochs, over_time) in zip(runs, panels, strict=True):
        for backend, (color, label) in _SIDES.items():
            curves = _groups([row for row in group if row["backend"] == backend], "seed")
            style = {"color": color, "linewidth": 3.4 if backend == "pyg" else 1.5, "alpha": 0.55 if backend == "pyg" else 1.0}
            for index, curve in enumerate(curves):
                curve.sort(key=lambda row: row["epoch"])
                epoch, seconds, train, val = (np.array([row[name] for row in curve], float) for name in _CURVE)
                over_epochs.plot(epoch, val, **style, label=f"{label}, validation" if index == 0 else None)
                over_epochs.plot(epoch, train, **style, linestyle=(0, (2, 1.5)), label=f"{label}, training" if index == 0 else None)
                over_time.plot(seconds, val, **style, marker="o", markersize=3, label=label if index == 0 else None)
        first = group[0]
        seeds = len({row["seed"] for row in group})
        size = f"{plain(first['dataset'])}, L={first['num_layers']}, {network(first)}, B={first['batch_size']:,}"
        over_epochs.set_title(f"{size}, {seeds} seed{'s' if seeds > 1 else ''}", fontsize=10)
        over_epochs.set(xlabel="epochs", ylabel="loss (target standardised)")
        over_time.set(xlabel="seconds of training, validation included", ylabel="validation loss", xscale="log")
        over_time.set_title("the same over wall time", fontsize=10)
        over_time.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        over_time.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        over_time.xaxis.set_minor_formatter(NullFormatter())
        over_epochs.xaxis.set_major_locator(MaxNLocator(integer=True))
        for axes in (over_epochs, over_time):
            tidy(axes)
            axes.legend(frameon=False, fontsize=8)
    return figure


_CURVE = ("epoch", "seconds", "train_loss", "val_loss")
