"""The columns of a table of predictions: predicted values, their standard deviations and what a calibration adds, and their CSV file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import compress
from pathlib import Path

import numpy as np

from molgcn.calibration.calibration import Calibration, TargetCalibration
from molgcn.calibration.outputs import Classes, Numbers, outputs_of
from molgcn.data.digits import digits_of
from molgcn.data.levels import Rows
from molgcn.data.packed import PackedMolecules
from molgcn.files.column import Column, Lists
from molgcn.files.spreadsheet import write_csv
from molgcn.tasks.base import Task

ByRows = Sequence[tuple[np.ndarray, Calibration]]
_SIGNS = {-1: "<", 0: "", 1: ">"}  # how bounds are written


def prediction_columns(
    task: Task,
    predictions: np.ndarray,
    deviation: np.ndarray | None,
    calibration: Calibration | ByRows | None,
    digits: Sequence[int],
    each: Mapping[str, np.ndarray] | None = None,
    rows: Rows | None = None,
) -> tuple[list[list[Column]], list[Column]]:
    """Return the columns of predictions, the same for every table.

    Args:
        task: the task of the model.
        predictions: [M, P], the predictions of one model, or those of several combined, NaN where there is none.
        deviation: [M, P], the standard deviation of the predictions over several models, or None. Values get a column "<header> std".
        calibration: the calibration of the predictions, or several with the rows that each is of, or None.
        digits: the significant digits of each column of predictions, with which bounds of intervals are written too.
        each: the predictions [M, P] of each single model by its name, to be shown beside the combined ones, or None.
        rows: the rows of the predictions where atoms or bonds have targets, whose columns then have a list for each molecule, or None.

    Returns:
        The columns of each target; and then those of the calibration (see :func:`calibrated_columns`) and of each model, with "<header>
        <name>" for each header.
    """
    by_target: list[list[Column]] = []
    place = 0
    classes = {target for part in task.parts if part.num_classes for target in part.names}
    for number, (target, names) in enumerate(zip(task.names, task.columns, strict=True)):
        columns = []
        for name in names:
            columns.append(Column(name, predictions[:, place], digits[place], target in classes))
            if deviation is not None and task.holds_values[place]:
                columns.append(Column(f"{name} std", deviation[:, place]))
            place += 1
        by_target.append(columns if rows is None else [rows.column(number, column) for column in columns])
    calibrations = [(np.arange(len(predictions)), calibration)] if isinstance(calibration, Calibration) else calibration or ()
    beside = _joined([(rows, calibrated_columns(own, task, predictions[rows], digits)) for rows, own in calibrations], len(predictions))
    for name, values in (each or {}).items():
        own = prediction_columns(task, values, None, None, digits, rows=rows)[0]
        beside += [replace(column, name=f"{column.name} {name}") for columns in own for column in columns]
    return by_target, beside


def calibrated_columns(calibration: Calibration, task: Task, predictions: np.ndarray, digits: Sequence[int]) -> list[Column]:
    """Return the columns of the methods that were fitted.

    Numbers get "<target> calibrated std", "<target> conformal lower" and "<target> conformal upper". Classes get a calibrated column for
    each column of probabilities, and "<target> conformal set". The arguments are those of :func:`prediction_columns`.
    """
    outputs = outputs_of(task, predictions)
    first = np.cumsum([0, *(len(names) for names in task.columns)])[:-1]  # the first column of each target
    columns: list[Column] = []
    for target, output, label, own, place in zip(calibration.targets, outputs, task.labels, task.columns, first.tolist(), strict=True):
        if isinstance(output, Numbers):
            columns += _of_numbers(target, output, label, digits[place])
        else:
            columns += _of_classes(target, output, label, [f"{label} calibrated{name.removeprefix(label)}" for name in own])
    return columns


def _joined(parts: Sequence[tuple[np.ndarray, list[Column]]], length: int) -> list[Column]:
    """Return columns of some rows each as columns of all, by their names; rows that are in no part have empty cells."""
    joined: dict[str, Column] = {}
    for rows, columns in parts:
        for column in columns:
            empty = np.full(length, np.nan) if column.values.dtype.kind == "f" else np.full(length, "", object)
            joined.setdefault(column.name, replace(column, values=empty)).values[rows] = column.values
    return [*joined.values()]


def _of_numbers(target: TargetCalibration, output: Numbers, label: str, digits: int) -> Iterator[Column]:
    if (std := target.std(output)) is not None:
        yield Column(f"{label} calibrated std", std)
    if target.conformal is not None:
        bounds = np.where(output.finite[:, None], target.conformal.bounds(output), np.nan)
        yield Column(f"{label} conformal lower", bounds[:, 0], digits)
        yield Column(f"{label} conformal upper", bounds[:, 1], digits)


def _of_classes(target: TargetCalibration, output: Classes, label: str, names: Sequence[str]) -> Iterator[Column]:
    known = output.finite
    probabilities = target.probabilities(output)
    if probabilities is not None:
        shown = np.where(known[:, None], probabilities, np.nan)
        for name, values in zip(names, shown.T[-len(names) :], strict=True):  # for two classes only class 1
            yield Column(name, values, are_probabilities=True)
    if target.conformal is not None:
        sets = [", ".join(compress(output.names, row)) for row in target.conformal.members(output).tolist()]
        cells = [f"{{{text}}}" if there else "" for text, there in zip(sets, known.tolist(), strict=True)]
        yield Column(f"{label} conformal set", np.array(cells, str))


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
    write_csv(path, [[name for name, _ in columns], *zip(*(cells for _, cells in columns), strict=True)])


def _cells(column: Column) -> list[str]:
    return ["" if cell == "nan" else cell for cell in column.cells]


def _true_cells(rows: Rows, place: int) -> list[str]:
    molecules, digits = rows.molecules, digits_of(rows.targets[:, place])
    if isinstance(lists := rows.column(place, Column("", rows.targets[:, place], digits)), Lists):
        return lists.cells
    values, form = molecules.targets[:, place], f".{digits}g"
    signs = [""] * len(values) if molecules.bounds is None else [_SIGNS[bound] for bound in molecules.bounds[:, place].tolist()]
    return [sign + ("" if math.isnan(value) else format(value, form)) for sign, value in zip(signs, values, strict=True)]
