"""The keys of the group `dataset` that are about targets, as a checked dataclass."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from molgcn.data.column_names import ByColumn, CellText, ColumnName
from molgcn.errors import UserError, nearest, shown

TASKS = ("regression", "classification", "multiclass")
TRANSFORMS = ("standardize", "log10", "quantile_normal")

_SKEWED = 1.5  # beyond it normal quantiles lowered the errors of all four such sets of TDC's ADMET group, in cross-validation


@dataclass(kw_only=True)
class TargetConfig:
    """Configuration of the targets. conf/dataset.yaml says what each key means; `choices` are the values of those by column."""

    tasks: ByColumn[str] | None = None
    transforms: ByColumn[str] | None = None
    transform: Literal["standardize", "log10", "quantile_normal", "auto"] = "standardize"
    units: ByColumn[CellText] | None = None
    labels: ByColumn[dict[CellText, int | None]] | None = None
    bounded: bool = False
    weights: ColumnName | None = None
    sampling: Literal["balanced"] | None = None
    choices: ClassVar[Mapping[str, Sequence[str]]] = {"tasks": TASKS, "transforms": TRANSFORMS}

    def __post_init__(self) -> None:
        """Check what can be checked without the data."""
        for key, choices in self.choices.items():
            for column, value in self.given(key).items():
                if value not in choices:
                    pair = f"{shown(column)}: {shown(value)}"
                    raise UserError(f"dataset.{key}={{{pair}}} is not an option.{nearest(value, choices)}")
        for column, numbers in self.given("labels").items():
            classes = set(numbers.values()) - {None}
            if classes != set(range(max(len(classes), 2))):
                given = ", ".join(f"{shown(text)}: {'null' if number is None else number}" for text, number in numbers.items())
                raise UserError(
                    f"dataset.labels={{{shown(column)}: {{{given}}}}} is not valid: expected the classes 0, 1 and so on, none left out, "
                    "and null for words that stand for a missing value."
                )

    def given(self, key: str) -> dict[str, Any]:
        """Return the value of a key, a mapping by column, which is empty if the key is left out."""
        return getattr(self, key) or {}

    def transform_of(self, name: str, known: np.ndarray) -> str:
        """Return the transform of a numeric target, one of :data:`TRANSFORMS`.

        `transform="auto"` is quantile_normal where the skewness of the values is above 1.5 or below -1.5, and else standardize.

        Args:
            name: the target.
            known: [n], its known values in the training part.
        """
        if self.transform != "auto" or name in self.given("transforms"):
            return str(self.given("transforms").get(name, self.transform))
        if not len(known):
            return "standardize"
        deviations = known.astype(np.float64) - known.mean(dtype=np.float64)
        skewness = (deviations**3).mean() / ((deviations**2).mean() ** 1.5 or 1.0)
        return "quantile_normal" if abs(skewness) > _SKEWED else "standardize"

    def check_columns(self, targets: Sequence[str]) -> None:
        """Check that every column in a mapping is a target, and name the nearest target where it is not."""
        for key in ("tasks", "transforms", "units", "labels"):
            for column in self.given(key):
                if column not in targets:
                    raise UserError(f"dataset.{key} names '{shown(column)}', which is not a target.{nearest(column, targets)}")

    @property
    def identity(self) -> dict[str, Any]:
        """The options that determine how the columns of a file are read. Empty by default."""
        options = {"labels": self.labels, "bounded": self.bounded, "weights": self.weights}
        return {key: value for key, value in options.items() if value}

    def class_names(self, target: str) -> list[str]:
        """Return the text of each class of a target, in order. The list is empty if classes are numbers."""
        texts: dict[int, str] = {}
        for text, number in self.given("labels").get(target, {}).items():
            if number is not None:
                texts.setdefault(number, text)
        return [texts[number] for number in sorted(texts)]
