"""The report: one HTML file that needs nothing beside it, runs nothing and escapes everything that came from a file."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from molgcn.comparison.comparison import Comparison
from molgcn.data.featurizers import get_featurizer
from molgcn.data.packed import PackedMolecules
from molgcn.data.scaffolds import murcko_scaffolds
from molgcn.report import charts
from molgcn.report.analysis import NO_RING, Errors, Group
from molgcn.report.drawings import draw
from molgcn.whole_file import whole

WORST = 12
SCAFFOLDS = 12
_PARTS = {"train": "training", "val": "validation", "test": "test", "all": "all"}


@dataclass(frozen=True)
class Subject:
    """What a report is about.

    Attributes:
        title: what was evaluated, in a line.
        facts: further lines as name and value: data, model, versions.
        metrics: "<part>/<metric>/<target>".
        sizes: molecules of every part in `metrics`.
        labels: known values of each of the T targets in every part.
        part: the one that is looked at closely.
        molecules: its M molecules.
        predictions: [M, P], as of :meth:`molgcn.tasks.base.Task.decode`.
        names: T targets.
        units: T units ("" = none).
        pictures: further PNG files to show, by caption.
        trained_on: by part, molecules that the model was trained on although the part is not its training part.
        comparison: what the metrics are read beside.
        spread: [M, T], the standard deviations that the model says its predictions have, or None.
    """

    title: str
    facts: Mapping[str, str]
    metrics: Mapping[str, float]
    sizes: Mapping[str, int]
    labels: Mapping[str, Sequence[int]]
    part: str
    molecules: PackedMolecules
    predictions: np.ndarray
    names: Sequence[str]
    units: Sequence[str]
    pictures: Mapping[str, Path] = field(default_factory=dict)
    trained_on: Mapping[str, int] = field(default_factory=dict)
    comparison: Comparison = field(default_factory=Comparison)
    spread: np.ndarray | None = None


Draw = Callable[[str], str | None]


def write_report(path: Path, subject: Subject, draw: Draw = draw) -> None:
    """Writes the page: metrics with units, parity, errors by size and scaffold, and the worst molecules drawn.

    Args:
        path: of the page.
        subject: what it is about.
        draw: gives the picture of a SMILES as an address, None where it cannot.
    """
    smiles = subject.molecules.smiles
    scaffolds = None if smiles is None else murcko_scaffolds(list(smiles))
    targets = [
        _target(Errors.of(name, unit, subject.molecules.targets[:, place], subject.predictions[:, place]), subject, scaffolds, draw)
        for place, (name, unit) in enumerate(zip(subject.names, subject.units, strict=True))
    ]
    write_page(path, "page.html.jinja", subject, targets, {"mae": "MAE", "rmse": "RMSE", "r2": "R\u00b2"}, has_units=True)


def write_page(
    path: Path, template: str, subject: Subject, targets: Sequence[Mapping[str, Any]], columns: Mapping[str, str], has_units: bool
) -> None:
    """Writes a page.

    Args:
        path: the file.
        template: its name; it extends `layout.html.jinja`.
        subject: what it is about.
        targets: what it shows of each target, with its `name`.
        columns: metrics of its table and their titles.
        has_units: whether targets have units.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("molgcn.report", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": number, "count": lambda value: f"{value:,}"}
    content = _content(subject) | {"targets": targets, "columns": columns.items(), "has_units": has_units}
    page = environment.get_template(template).render(content)
    with whole(path) as temporary:
        temporary.write_text(page, encoding="utf-8")


def number(value: float, digits: int = 4) -> str:
    """A value's significant digits; a dash for a value that is not there."""
    return f"{value:.{digits}g}".replace("-", "\u2212") if math.isfinite(value) else "\u2013"


def _content(subject: Subject) -> dict[str, Any]:
    """What every page shows."""
    return {
        "subject": subject,
        "missing": any(count < subject.sizes[part] for part, labels in subject.labels.items() for count in labels),
        "parts": {part: _PARTS[part] for part in subject.sizes},
        "part": _PARTS[subject.part],
        "pictures": {caption: charts.embedded(path.read_bytes(), "image/png") for caption, path in subject.pictures.items()},
        "skipped": len(subject.molecules.skipped),
        "written": datetime.datetime.now().astimezone().strftime("%Y-%m-%d %H:%M %Z"),
    }


def _target(errors: Errors, subject: Subject, scaffolds: list[str] | None, draw: Draw) -> dict[str, Any]:
    sizes = errors.by_size(subject.molecules.num_nodes_per_graph)
    groups, rare = ([], None) if scaffolds is None else errors.by_scaffold(scaffolds)
    return {
        "name": errors.name,
        "errors": errors,
        "missing": len(subject.molecules) - len(errors.index) - errors.unpredicted,
        "parity": charts.parity(errors) if len(errors.index) else None,
        "histogram": charts.histogram(errors) if len(errors.index) else None,
        "by_size": charts.by_size(sizes, errors, _size_label(subject.molecules.features)) if sizes else None,
        "scaffolds": [_scaffold(group, errors, draw) for group in groups[:SCAFFOLDS]],
        "num_scaffolds": len(groups) + (rare.count if rare else 0),
        "rare": rare,
        "worst": [_molecule(errors, place, subject.molecules, draw) for place in errors.worst(WORST).tolist()],
    }


def _size_label(features: str | None) -> str:
    if features is None:
        return "atoms in the molecule"
    return "atoms in the molecule, with hydrogens" if get_featurizer(features).hydrogens == "explicit" else "heavy atoms in the molecule"


def _scaffold(group: Group, errors: Errors, draw: Draw) -> dict[str, Any]:
    ring = group.name != NO_RING
    share = min(group.mae / (2 * errors.mae or 1.0), 1.0)
    return {"group": group, "picture": draw(group.name) if ring else None, "ring": ring, "share": share}


def _molecule(errors: Errors, place: int, molecules: PackedMolecules, draw: Draw) -> dict[str, Any]:
    return drawn(molecules, int(errors.index[place]), draw) | {
        "true": float(errors.true[place]),
        "predicted": float(errors.predicted[place]),
        "error": float(errors.error[place]),
    }


def drawn(molecules: PackedMolecules, index: int, draw: Draw) -> dict[str, Any]:
    """Return the row, SMILES and drawing of a molecule, for its card."""
    text = None if molecules.smiles is None else molecules.smiles[index]
    return {"row": int(molecules.rows[index]), "smiles": text, "picture": None if text is None else draw(text)}
