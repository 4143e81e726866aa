"""The keys of the group `dataset` that say what the columns of targets hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from molgcn.data.column_names import CellText, ColumnName
from molgcn.errors import UserError, nearest, shown

TASKS = ("regression", "classification", "multiclass")
TRANSFORMS = ("standardize", "log10", "quantile_normal")


@dataclass(kw_only=True)
class TargetConfig:
    """What conf/dataset says of the targets, by their columns.

    Attributes:
        tasks: regression, classification or multiclass; a column that is not named has the task that its values suggest.
        transforms: what is learned of a number: standardize (the default), log10 or quantile_normal, which are standardised too.
        units: shown with every error; for files that do not say.
        labels: the class, 0, 1, ..., that each text of a column stands for; upper and lower case count only where both are named.
        bounded: whether cells such as <10 and >=1e4 are bounds of true values.
        weights: column of how much each molecule weighs in the loss.
        sampling: "balanced" draws equally many molecules of each class for every epoch; None takes each molecule once.
    """

    tasks: dict[ColumnName, str] | None = None
    transforms: dict[ColumnName, str] | None = None
    units: dict[ColumnName, CellText] | None = None
    labels: dict[ColumnName, dict[CellText, int]] | None = None
    bounded: bool = False
    weights: ColumnName | None = None
    sampling: Literal["balanced"] | None = None
    choices: ClassVar[Mapping[str, Sequence[str]]] = {"tasks": TASKS, "transforms": TRANSFORMS}

    def __post_init__(self) -> None:
        """Checks what can be checked without the data.

        Raises:
            UserError: naming the key, what it accepts and the nearest valid value.
        """
        for key, choices in self.choices.items():
            for column, value in self.given(key).items():
                if value not in choices:
                    pair = f"{shown(column)}: {shown(value)}"
                    raise UserError(f"dataset.{key}={{{pair}}} is not an option.{nearest(value, choices)}")
        for column, numbers in self.given("labels").items():
            classes = set(numbers.values())
            if classes != set(range(max(len(classes), 2))):
                given = ", ".join(f"{shown(text)}: {number}" for text, number in numbers.items())
                raise UserError(
                    f"dataset.labels={{{shown(column)}: {{{given}}}}} is not valid: expected the classes 0, 1 and so on, none left out."
                )

    def given(self, key: str) -> dict[str, Any]:
        """Return what a key says, by column; nothing for a key that is left out."""
        return getattr(self, key) or {}

    def check_columns(self, targets: Sequence[str]) -> None:
        """Check that what is given by column is given for targets.

        Raises:
            UserError: naming the key, the column and the nearest target.
        """
        for key in ("tasks", "transforms", "units", "labels"):
            for column in self.given(key):
                if column not in targets:
                    raise UserError(f"dataset.{key} names '{shown(column)}', which is no target.{nearest(column, targets)}")

    @property
    def identity(self) -> dict[str, Any]:
        """What decides, beside a file's content, what its columns of targets are read as; nothing by default."""
        options = {"labels": self.labels, "bounded": self.bounded, "weights": self.weights}
        return {key: value for key, value in options.items() if value}

    def class_names(self, target: str) -> list[str]:
        """Return the text of each class of a target, in order; nothing where classes are numbers."""
        texts: dict[int, str] = {}
        for text, number in self.given("labels").get(target, {}).items():
            texts.setdefault(number, text)
        return [texts[number] for number in sorted(texts)]
