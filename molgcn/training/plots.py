"""Pictures of a run: learning curve and parity plot."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

_BLUE, _ORANGE, _GREY = "#1f6fb4", "#d1632a", "#9aa0a6"


def _figure(width: float, height: float) -> Figure:
    figure = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="0.92", linewidth=0.8)
    axes.set_axisbelow(True)


def plot_learning_curve(metrics_csv: Path, path: Path, loss_name: str) -> None:
    """Training and validation loss over optimiser steps, from `metrics.csv`."""
    table = pd.read_csv(metrics_csv)
    figure = _figure(6.4, 4.0)
    axes = figure.subplots()
    for column, color, label in (("train/loss", _ORANGE, "training"), ("val/loss", _BLUE, "validation")):
        rows = table[["step", column]].dropna()
        axes.plot(rows["step"], rows[column], color=color, linewidth=1.6, label=label, marker="o" if len(rows) < 3 else None, markersize=4)
    values = pd.concat([table["train/loss"], table["val/loss"]]).dropna()
    if len(values) and values.min() > 0:
        axes.set_yscale("log")
    validated = table[["step", "val/loss"]].dropna().to_numpy()
    if len(validated):
        step, loss = validated[validated[:, 1].argmin()]
        axes.scatter(step, loss, s=42, color=_BLUE, edgecolor="white", zorder=3, label="best validation")
    axes.set_xlabel("optimiser step")
    axes.set_ylabel(f"{loss_name} loss (standardised)")
    axes.legend(frameon=False)
    _tidy(axes)
    figure.savefig(path)


def plot_parity(targets: np.ndarray, predictions: np.ndarray, names: Sequence[str], units: Sequence[str], path: Path) -> None:
    """Predicted against true values of the test part [B, T], one panel a target."""
    columns = min(len(names), 4)
    rows = math.ceil(len(names) / columns)
    figure = _figure(4.0 * columns, 3.8 * rows)
    panels = np.atleast_1d(figure.subplots(rows, columns, squeeze=False)).ravel()
    for panel in panels[len(names) :]:
        panel.set_visible(False)
    for i, (name, unit) in enumerate(zip(names, units, strict=True)):
        known = ~np.isnan(targets[:, i])
        true, predicted = targets[known, i], predictions[known, i]
        axes = panels[i]
        label = name + (f" ({unit})" if unit else "")
        axes.set_xlabel(f"true {label}")
        axes.set_ylabel(f"predicted {label}")
        _tidy(axes)
        if len(true) == 0:
            axes.set_title(f"{name}: no test values")
            continue
        low, high = float(min(true.min(), predicted.min())), float(max(true.max(), predicted.max()))
        margin = 0.04 * (high - low) or 1.0
        limits = (low - margin, high + margin)
        axes.plot(limits, limits, color=_GREY, linewidth=1.0, zorder=1)
        axes.scatter(true, predicted, s=9 if len(true) < 2000 else 4, alpha=0.45, color=_BLUE, linewidths=0, zorder=2)
        axes.set(xlim=limits, ylim=limits, aspect="equal")
        axes.set_title(f"MAE {np.abs(true - predicted).mean():.4g} {unit}".rstrip() + f", {len(true):,} molecules", fontsize=10)
    figure.savefig(path)
