"""Write predictions beside the true values, as a CSV file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from molgcn.data.digits import digits_of
from molgcn.data.levels import Rows
from molgcn.data.packed import PackedMolecules
from molgcn.files.column import Column, Lists
from molgcn.files.spreadsheet import Writer
from molgcn.files.whole_file import whole
from molgcn.tasks.base import Task

_SIGNS = {-1: "<", 0: "", 1: ">"}  # how bounds are written


def write_predictions(
    path: Path, task: Task, molecules: PackedMolecules, predicted: Sequence[Sequence[Column]], beside: Sequence[Column] = ()
) -> None:
    """Write a CSV file with one line per molecule: `row`, `smiles`, for every target the true value and its predictions, and more columns.

    The columns are those of :func:`molgcn.calibration.columns.prediction_columns`. Missing values are empty cells.
    """
    rows = Rows.of(molecules)
    columns = [("row", [str(row) for row in molecules.rows.tolist()]), ("smiles", molecules.smiles or [""] * len(molecules))]
    for place, (label, own) in enumerate(zip(task.labels, predicted, strict=True)):
        columns += [(label, _true_cells(rows, place)), *((one.name, _cells(one)) for one in own)]
    columns += [(one.name, _cells(one)) for one in beside]
    with whole(path) as temporary, open(temporary, "w", newline="") as file:
        writer = Writer(file)
        writer.writerow([name for name, _ in columns])
        writer.writerows(zip(*(cells for _, cells in columns), strict=True))


def _cells(column: Column) -> list[str]:
    return ["" if cell == "nan" else cell for cell in column.cells]


def _true_cells(rows: Rows, place: int) -> list[str]:
    molecules, digits = rows.molecules, digits_of(rows.targets[:, place])
    if isinstance(lists := rows.column(place, Column("", rows.targets[:, place], digits)), Lists):
        return lists.cells
    values, form = molecules.targets[:, place], f".{digits}g"
    signs = [""] * len(values) if molecules.bounds is None else [_SIGNS[bound] for bound in molecules.bounds[:, place].tolist()]
    return [sign + ("" if math.isnan(value) else format(value, form)) for sign, value in zip(signs, values, strict=True)]
