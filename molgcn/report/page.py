"""The report as one HTML file that needs no other file, has no scripts and escapes everything that came from a file."""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from molgcn.errors import counted
from molgcn.files.whole_file import write_text
from molgcn.metrics.comparison import BASELINES, Interval
from molgcn.report.plots import embedded
from molgcn.report.subject import PARTS, Subject


def render(template: str, folder: Path = Path(__file__).parent, **values: Any) -> Markup:
    """Return the HTML of a template with values filled in. `template` is its path below the folder."""
    return Markup(_environment(folder).get_template(template).render(values))  # the environment escapes


def number(value: float, digits: int = 4) -> str:
    """Return a number as text with some significant digits; a dash where it is not finite."""
    return f"{value:.{digits}g}".replace("-", "\u2212") if math.isfinite(value) else "\u2013"


@cache
def _environment(folder: Path) -> Environment:
    # An editable install also finds folders beside the checkout that have the name of a package: jinja2's PackageLoader looks there.
    environment = Environment(
        loader=FileSystemLoader(folder), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": number, "count": lambda value: f"{value:,}", "counted": counted}
    return environment


@dataclass(frozen=True)
class TargetPart:
    """The part of the page about one target, with the HTML of its sections; they are empty where nothing can be measured."""

    name: str
    unit: str
    sections: Sequence[Markup]


@dataclass(frozen=True)
class TargetGroup:
    """The part of the page about targets that have the same metrics: what is measured, such as "errors", and the table of all targets."""

    measured: str
    overview: Markup
    parts: Sequence[TargetPart]


def write_page(path: Path, subject: Subject, groups: Sequence[TargetGroup]) -> None:
    """Write a page about a subject, with one or several groups of its targets, one below the other."""
    page = render(
        "layout.html.jinja",
        subject=subject,
        measured=" and ".join(dict.fromkeys(group.measured for group in groups)).capitalize(),
        overviews=[group.overview for group in groups],
        described=BASELINES,
        parts=[part for group in groups for part in group.parts],
        part_names=PARTS,
        pictures={caption: embedded(file.read_bytes(), "image/png") for caption, file in subject.pictures.items()},
        skipped=len(subject.molecules.skipped),
        written=datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
    )
    write_text(path, page)


@dataclass(frozen=True)
class Row:
    """A row of the table: a part of a target, or a baseline."""

    name: str  # the part, or the baseline
    kind: str  # "main" for the part that the page shows in detail, "baseline" for a baseline, or ""
    counts: tuple[int, int] | None  # the numbers of molecules and of known values of the part; None for a baseline or a mean
    # the metrics with their intervals. A metric is NaN where it is undefined, and None where the row does not have it
    values: list[tuple[float | None, Interval | None]]


def overview(subject: Subject, columns: Mapping[str, str]) -> Markup:
    """Return the table of metrics, whose titles `columns` has by metric, with an explanation of them."""
    measured = {key.split("/")[1] for key in subject.metrics}
    columns = {metric: title for metric, title in columns.items() if metric in measured}
    metrics, comparison = [*columns], subject.comparison
    groups: dict[tuple[str, str], list[Row]] = {}
    if any(key.partition("/")[2] in metrics for key in comparison.means) and len(subject.names) > 1:
        fewest = min((count for key, count in comparison.counted.items() if key.partition("/")[2] in metrics), default=0)
        left_out = f", of which at least {fewest} define a metric" if fewest < len(subject.names) else ""
        groups[f"mean of {len(subject.names)} targets{left_out}", ""] = [*_rows(subject, metrics, comparison.means, "", {})]
    for place, (name, unit) in enumerate(zip(subject.names, subject.units, strict=True)):
        sizes = {part: (size, subject.labels[part][place]) for part, size in subject.sizes.items()}
        groups[name, unit] = [*_rows(subject, metrics, subject.metrics, f"/{name}", sizes)]
    return render(
        "sections/overview.html.jinja",
        groups=groups,
        columns=columns,
        missing=any(count < subject.sizes[part] for part, labels in subject.labels.items() for count in labels),
        classes="roc_auc" in columns,
    )


def _rows(
    subject: Subject, metrics: list[str], values: Mapping[str, float], ending: str, sizes: Mapping[str, tuple[int, int]]
) -> Iterator[Row]:
    """Yield a row for every part, and below it a row for every baseline that was measured on it."""
    comparison = subject.comparison
    for part in subject.sizes:
        keys, main = [f"{part}/{metric}{ending}" for metric in metrics], part == subject.part
        found = [(values.get(key), comparison.intervals.get(key)) for key in keys]
        yield Row(PARTS[part], "main" if main else "", sizes.get(part), found)
        for name, baseline in comparison.baselines.items():
            if not baseline.keys().isdisjoint(keys):
                yield Row(name, "baseline", None, [(baseline.get(key), None) for key in keys])
