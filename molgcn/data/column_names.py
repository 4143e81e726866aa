"""Types for names of columns that come from a command line or YAML, and for mappings by column."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator

from molgcn.files.mapping_text import read_mapping

T = TypeVar("T")


def _as_name(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, bool) else _as_name(value)


def as_names(value: Any) -> Any:
    """Return one name or several names as a list of texts, and None unchanged."""
    if value is None:
        return None
    return [_as_name(one) for one in (value if isinstance(value, list | tuple) else [value])]


def as_one_or_several(value: Any) -> Any:
    """Return one name as a text and several names as a list."""
    names = as_names(value)
    return names[0] if isinstance(names, list) and len(names) == 1 else names


def _as_mapping(value: object) -> object:
    found = read_mapping(value) if isinstance(value, str) else None
    return value if found is None else found


# YAML and Hydra turn a name such as 1 into a number, and a single column may be given without brackets
ColumnName = Annotated[str, BeforeValidator(_as_name)]
# YAML and Hydra turn the text of a cell such as True or 1 into a boolean or a number
CellText = Annotated[str, BeforeValidator(_as_text)]
SmilesColumns = Annotated[str | list[str], BeforeValidator(as_one_or_several)]
ColumnNames = Annotated[list[str], BeforeValidator(as_names)]
ByColumn = Annotated[dict[ColumnName, T], BeforeValidator(_as_mapping)]
