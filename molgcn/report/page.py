"""The report as one HTML file that needs no other file, has no scripts and escapes everything that came from a file."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from molgcn.errors import counted
from molgcn.files.whole_file import whole
from molgcn.metrics.comparison import BASELINES
from molgcn.report import charts
from molgcn.report.subject import PARTS, Subject


def render(template: str, package: str = "molgcn.report", **values: Any) -> Markup:
    """Return the HTML of a template with values filled in. `template` is its path below the package."""
    return Markup(_environment(package).get_template(template).render(values))  # the environment escapes


def number(value: float, digits: int = 4) -> str:
    """Return a number as text with some significant digits; a dash where it is not finite."""
    return f"{value:.{digits}g}".replace("-", "\u2212") if math.isfinite(value) else "\u2013"


@cache
def _environment(package: str) -> Environment:
    environment = Environment(
        loader=PackageLoader(package, "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": number, "count": lambda value: f"{value:,}", "counted": counted}
    return environment


@dataclass(frozen=True)
class TargetPart:
    """The part of the page about one target.

    Attributes:
        name: the target, which is the heading.
        unit: the unit of the target ("" = none).
        sections: the HTML of the sections; empty where nothing can be measured.
    """

    name: str
    unit: str
    sections: Sequence[Markup]


@dataclass(frozen=True)
class TargetGroup:
    """The part of the page about targets that have the same metrics.

    Attributes:
        measured: what the page measures, such as "errors".
        overview: the table of all targets.
        parts: one part per target.
    """

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
        pictures={caption: charts.embedded(file.read_bytes(), "image/png") for caption, file in subject.pictures.items()},
        skipped=len(subject.molecules.skipped),
        written=datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
    )
    with whole(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
