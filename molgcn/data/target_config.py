"""The keys of the group `dataset` that say what the columns of targets hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from molgcn.data.column_names import ColumnName
from molgcn.errors import UserError, nearest, shown

TASKS = ("regression", "classification", "multiclass")


@dataclass(kw_only=True)
class TargetConfig:
    """What conf/dataset says of the targets, by their columns.

    Attributes:
        tasks: regression, classification or multiclass; a column that is not named has the task that its values suggest.
    """

    tasks: dict[ColumnName, str] | None = None
    choices: ClassVar[Mapping[str, Sequence[str]]] = {"tasks": TASKS}

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

    def given(self, key: str) -> dict[str, Any]:
        """Return what a key says, by column; nothing for a key that is left out."""
        return getattr(self, key) or {}

    def check_columns(self, targets: Sequence[str]) -> None:
        """Check that what is given by column is given for targets.

        Raises:
            UserError: naming the key, the column and the nearest target.
        """
        for key in ("tasks",):
            for column in self.given(key):
                if column not in targets:
                    raise UserError(f"dataset.{key} names '{shown(column)}', which is no target.{nearest(column, targets)}")
