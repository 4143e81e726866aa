"""What a report is about."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from molgcn.data.label_columns import with_targets
from molgcn.data.packed import PackedMolecules
from molgcn.data.splits.parts import IN_WORDS
from molgcn.metrics.comparison import Comparison
from molgcn.report.uncertainty import Uncertainty

WORST = 12  # molecules that a page draws of each target

PARTS = {**IN_WORDS, "all": "all"}

Draw = Callable[[str], str | None]


@dataclass(frozen=True)
class Trainings:
    """The trainings of a run of several, as a table of each target.

    Attributes:
        headers: by target, those of the columns of numbers.
        rows: by target, the folder of each training below the page's and its cells.
        totals: by target, name and cells of each row that sums them up.
        explained: what the numbers are.
    """

    headers: Mapping[str, Sequence[str]]
    rows: Mapping[str, Sequence[tuple[str, Sequence[str]]]]
    totals: Mapping[str, Sequence[tuple[str, Sequence[str]]]]
    explained: str


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
        class_counts: labels [T, C] of each class in every part; none where targets are numbers.
        trainings: what it consists of, where it is a run of several trainings.
        uncertainty: the section about uncertainties, or None.
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
    class_counts: Mapping[str, np.ndarray] = field(default_factory=dict)
    trainings: Trainings | None = None
    uncertainty: Uncertainty | None = None

    def of_targets(self, places: Sequence[int], columns: Sequence[int]) -> Subject:
        """Return the same about some of the targets, at `places` among them, with their columns of predictions."""
        names, units = ([values[place] for place in places] for values in (self.names, self.units))
        return replace(
            self,
            labels={part: [counts[place] for place in places] for part, counts in self.labels.items()},
            molecules=with_targets(self.molecules, places),
            predictions=self.predictions[:, columns],
            names=names,
            units=units,
            class_counts={part: counts[places] for part, counts in self.class_counts.items()},
        )

    def drawn(self, index: int, draw: Draw) -> dict[str, Any]:
        """Return the row, SMILES and drawing of a molecule, for its card."""
        text = None if self.molecules.smiles is None else self.molecules.smiles[index]
        return {"row": int(self.molecules.rows[index]), "smiles": text, "picture": None if text is None else draw(text)}
