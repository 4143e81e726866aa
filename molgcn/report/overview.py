"""The table of all targets and parts, with intervals and baselines of the part that the page shows in detail."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from markupsafe import Markup

from molgcn.metrics.comparison import Interval
from molgcn.report.page import render
from molgcn.report.subject import PARTS, Subject


@dataclass(frozen=True)
class Row:
    """A row of the table: a part of a target, or a baseline.

    Attributes:
        name: the part, or the baseline.
        kind: "main" for the part that the page shows in detail, "baseline" for a baseline, or "".
        counts: the numbers of molecules and of known values of the part; None for a baseline or a mean.
        values: the metrics with their intervals. A metric is NaN where it is undefined, and None where the row does not have it.
    """

    name: str
    kind: str
    counts: tuple[int, int] | None
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
