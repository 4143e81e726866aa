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

WORST = 12  # molecules that a page draws per target

PARTS = {**IN_WORDS, "all": "all"}

Draw = Callable[[str], str | None]


@dataclass(frozen=True)
class Trainings:
    """The trainings of a run of several trainings, as one table per target."""

    headers: Mapping[str, Sequence[str]]  # by target, the headers of the columns of numbers
    # by target, the row of each training: its folder relative to the page, and its cells
    rows: Mapping[str, Sequence[tuple[str, Sequence[str]]]]
    # by target, the rows that summarise the trainings: the name of each, and its cells
    totals: Mapping[str, Sequence[tuple[str, Sequence[str]]]]
    explained: str  # a sentence that says what the numbers are


@dataclass(frozen=True)
class Uncertainty:
    """The values of the section about uncertainties."""

    about: str  # what the uncertainties were calibrated on; "" where they are not calibrated
    approximate: bool  # whether the weights were chosen on the molecules that calibration used
    missed: float | None  # the share of molecules that intervals or sets may miss, or None where there are none
    # by target and title, each measure before and after calibration; NaN where it was not measured
    measures: dict[str, dict[str, tuple[float, float]]]
    pictures: dict[str, str]  # by target, the `data:` URL of its picture


@dataclass(frozen=True)
class Subject:
    """What a report is about."""

    title: str  # what was evaluated, in one line
    facts: Mapping[str, str]  # further lines about data, model and versions, as name and value
    metrics: Mapping[str, float]  # the metrics by "<part>/<metric>/<target>"
    sizes: Mapping[str, int]  # by part, the number of molecules
    labels: Mapping[str, Sequence[int]]  # by part, the number of known values of each of the T targets
    part: str  # the part that the page shows in detail
    molecules: PackedMolecules  # the M molecules of that part
    predictions: np.ndarray  # float64 [M, P], the predictions for that part; see :meth:`molgcn.tasks.base.Task.decode`
    names: Sequence[str]  # the names of the T targets
    units: Sequence[str]  # the units of the T targets ("" = none)
    pictures: Mapping[str, Path] = field(default_factory=dict)  # further PNG files to show, by caption
    # by part, the number of molecules that the model was trained on although the part is not its training part
    trained_on: Mapping[str, int] = field(default_factory=dict)
    comparison: Comparison = field(default_factory=Comparison)  # intervals, baselines, means and thresholds to show with the metrics
    # by part, the number of labels of each class [T, C]; empty where targets are numbers
    class_counts: Mapping[str, np.ndarray] = field(default_factory=dict)
    trainings: Trainings | None = None  # the trainings of a run of several, or None
    uncertainty: Uncertainty | None = None  # the section about uncertainties, or None
    # by target of atoms or bonds, "atom" or "bond" and the number of them in each part. Where there are any, each of the `molecules` is
    # that of a single value of a target
    below: Mapping[str, tuple[str, Mapping[str, int]]] = field(default_factory=dict)
    numbers: np.ndarray | None = None  # RDKit's number of each such atom or bond in its molecule, int64 [M], where there are any

    def what(self, name: str) -> str:
        """Return what has a target, in words: "molecule", "atom" or "bond"."""
        return self.below[name][0] if name in self.below else "molecule"

    def count(self, name: str, part: str | None = None) -> int:
        """Return the number of molecules, atoms or bonds that may have a target in a part, by default the one that is shown."""
        return (self.below[name][1] if name in self.below else self.sizes)[part or self.part]

    def number_line(self, name: str, index: int) -> dict[str, str]:
        """Return the line of a card that says which atom or bond of its molecule it shows; none for a molecule."""
        return {} if self.numbers is None or name not in self.below else {self.what(name): str(self.numbers[index])}

    def of_targets(self, places: Sequence[int], columns: Sequence[int]) -> Subject:
        """Return the subject restricted to the targets at some places, which have these columns of predictions."""
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
        """Return the row number, SMILES and drawing of a molecule, as its card on the page shows them."""
        text = None if self.molecules.smiles is None else self.molecules.smiles[index]
        return {"row": int(self.molecules.rows[index]), "smiles": text, "picture": None if text is None else draw(text)}
