"""The charts of the report, as SVG pictures inside the page. Text is drawn as paths, so that no font is needed."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from molgcn.report.analysis import Errors, Group
from molgcn.report.plots import BLUE, GREY, new_figure, parity_panel, plain, tidy


def parity(errors: Errors) -> str:
    """Draw the predictions against the true values."""
    figure = new_figure(4.4, 4.5)
    parity_panel(figure.subplots(), errors.true, errors.predicted, plain(errors.name), plain(errors.unit))
    return as_svg(figure)


def histogram(errors: Errors) -> str:
    """Draw a histogram of the errors. The largest one percent is counted in the outermost bars."""
    figure = new_figure(4.4, 4.5)
    axes = figure.subplots()
    error = errors.error
    limit = float(np.quantile(np.abs(error), 0.99)) or float(np.abs(error).max()) or 1.0
    axes.hist(error.clip(-limit, limit), bins=41, range=(-limit, limit), color=BLUE, alpha=0.85, linewidth=0)
    axes.axvline(0, color=GREY, linewidth=1.0)
    axes.set_xlabel(f"predicted \u2212 true {plain(errors.name)}" + (f" ({plain(errors.unit)})" if errors.unit else ""))
    axes.set_ylabel("molecules")
    shares = f"half within ±{errors.quantile(0.5):.3g}, 95 % within ±{errors.quantile(0.95):.3g}"
    beyond = int((np.abs(error) > limit).sum())
    clipped = f"{beyond:,} beyond ±{limit:.3g} in the outermost bars" if beyond else ""
    axes.set_title(f"{shares}\n{clipped}", fontsize=10)
    tidy(axes)
    return as_svg(figure)


def by_size(groups: Sequence[Group], errors: Errors, what: str) -> str:
    """Draw the mean absolute error of each range of sizes, with the number of molecules below it."""
    figure = new_figure(9.0, 3.3)
    axes = figure.subplots()
    places = np.arange(len(groups))
    axes.bar(places, [group.mae for group in groups], width=0.72, color=BLUE, alpha=0.85)
    axes.axhline(errors.mae, color=GREY, linewidth=1.2, linestyle="--", label=f"all molecules, {errors.mae:.3g}")
    axes.set_xticks(places, [f"{group.name}\nn = {group.count:,}" for group in groups], fontsize=9)
    axes.set_xlabel(what)
    axes.set_ylabel("MAE" + (f" ({plain(errors.unit)})" if errors.unit else ""))
    axes.legend(frameon=False, fontsize=9)
    tidy(axes)
    axes.grid(visible=False, axis="x")
    return as_svg(figure)


def as_svg(figure: Figure) -> str:
    """Return a figure as a `data:` URL of an SVG picture; see :func:`embedded`."""
    file = io.BytesIO()
    with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": "molgcn"}):
        figure.savefig(file, format="svg", bbox_inches="tight", pad_inches=0.08, metadata={"Date": None, "Creator": None})
    return embedded(file.getvalue(), "image/svg+xml")


def embedded(content: bytes, kind: str) -> str:
    """Return a picture as the URL `data:<kind>;base64,...`. Browsers run no script in such a picture."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"
