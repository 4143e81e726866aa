"""Names of columns as a command line and YAML give them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator


def _as_name(value: object) -> object:
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def _as_text(value: object) -> object:
    return str(value) if isinstance(value, bool) else _as_name(value)


def as_names(value: Any) -> Any:
    """Return one name or several as a list, None as it is."""
    if value is None:
        return None
    return [_as_name(one) for one in (value if isinstance(value, list | tuple) else [value])]


# YAML and Hydra make a number of a header such as 1, and one column needs no brackets
ColumnName = Annotated[str, BeforeValidator(_as_name)]
# a cell may say True or 1
CellText = Annotated[str, BeforeValidator(_as_text)]
ColumnNames = Annotated[list[str], BeforeValidator(as_names)]
