"""Input rows of several molecules, such as a solute and its solvent, each in a column of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from molgcn.data.formats import Molecules, Record
from molgcn.errors import UserError, nearest, shown


def with_components(molecules: Molecules, columns: Sequence[str], components: Sequence[str]) -> Molecules:
    """Return a file whose records hold the SMILES of all components, one per line, from a column for each component.

    Where rows are one molecule and there are no components, the file is returned unchanged. UserError names columns that do not fit.
    """
    if len(columns) != len(components) and (components or len(columns) > 1):
        expected = f"{len(components)} columns, for {', '.join(components)}" if components else "one column"
        raise UserError(f"smiles={list(columns)} is not valid: expected {expected}, as in the training data.")
    if not components:
        return molecules
    for name in columns:
        if name not in molecules.columns or molecules.kind != "smiles":
            hint = nearest(name, molecules.columns)
            raise UserError(
                f"{molecules.name} has no column of SMILES '{shown(name)}', a component that the model was trained with.{hint} Name "
                f"the columns for {', '.join(components)} with smiles=[<column>,<column>]."
            )
    places = [molecules.columns.index(name) for name in columns]

    def records() -> Iterator[Record]:
        for record in molecules.records:
            yield record._replace(molecule=one_item([record.cells[place] for place in places], components))

    return replace(molecules, records=records())


def as_rows(smiles: Any) -> list[Any]:
    """Return SMILES as a list: one string, a list, an array, or a column or table of pandas, with a column for each molecule of a row."""
    if isinstance(smiles, str):
        return [smiles]  # which would otherwise be a sequence of letters
    values = smiles.to_numpy() if hasattr(smiles, "to_numpy") else smiles  # a table would otherwise be the names of its columns
    if getattr(values, "ndim", 1) == 2:
        values = values[:, 0] if values.shape[1] == 1 else values.tolist()
    return list(values)


def one_item(smiles: str | Sequence[str], components: Sequence[str]) -> str:
    """Return the text of a row that is featurised: its SMILES, or those of all components, one per line; UserError if they do not fit."""
    alone = isinstance(smiles, str) or not isinstance(smiles, Iterable)  # None and NaN are missing SMILES
    if alone and not components:
        return _text(smiles)
    given = [smiles] if alone else list(smiles)
    if len(given) != len(components):
        raise UserError(f"A row has {len(given)} SMILES, {given}. The model takes {', '.join(components) or 'one'} in each row.")
    return "\n".join(" ".join(_text(one).split()) for one in given)


def _text(smiles: Any) -> str:
    """Return a SMILES; a missing one, None or NaN as in a column of pandas, is empty."""
    if smiles is None or smiles != smiles:
        return ""
    if not isinstance(smiles, str):
        raise UserError(f"{smiles!r} is not a SMILES: expected text.")
    return smiles
