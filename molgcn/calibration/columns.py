"""The columns that a calibration adds to a table of predictions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from molgcn.calibration.calibration import Calibration, TargetCalibration
from molgcn.calibration.outputs import Classes, Numbers, Output, outputs_of
from molgcn.tasks.base import Task

Column = tuple[str, list[str]]
_FORM = ".7g"


def calibrated_columns(calibration: Calibration, task: Task, predictions: np.ndarray, digits: Sequence[int]) -> list[Column]:
    """Return headers and cells: "<target> calibrated std", "lower" and "upper", or "calibrated probability" and "set".

    Args:
        calibration: of the model whose predictions they are.
        task: of the model.
        predictions: [M, P]; what has none has empty cells.
        digits: significant digits of each column of predictions, in which bounds are written.
    """
    outputs = outputs_of(task, predictions)
    places = np.cumsum([0, *(len(names) for names in task.columns)])
    columns: list[Column] = []
    for target, output, label, place in zip(calibration.targets, outputs, task.labels, places[:-1], strict=True):
        columns += [(f"{label} {ending}", cells) for ending, cells in _of_target(target, output, f".{digits[place]}g")]
    return columns


def _of_target(target: TargetCalibration, output: Output, form: str) -> Iterator[Column]:
    known = output.finite
    if isinstance(output, Numbers):
        if (std := target.std(output)) is not None:
            yield "calibrated std", _cells(std, known, _FORM)
        if target.conformal is not None:
            lower, upper = target.conformal.bounds(output).T
            yield "lower", _cells(lower, known, form)
            yield "upper", _cells(upper, known, form)
        return
    yield from _of_classes(target, output, known)


def _of_classes(target: TargetCalibration, output: Classes, known: np.ndarray) -> Iterator[Column]:
    probabilities = target.probabilities(output)
    if probabilities is not None and probabilities.shape[1] == 2:
        yield "calibrated probability", _cells(probabilities[:, 1], known, _FORM)
    elif probabilities is not None:
        for number, column in enumerate(probabilities.T):
            yield f"calibrated probability {number}", _cells(column, known, _FORM)
    if target.conformal is not None:
        members = target.conformal.members(output)
        yield "set", [_set(row) if there else "" for row, there in zip(members, known.tolist(), strict=True)]


def _cells(values: np.ndarray, known: np.ndarray, form: str) -> list[str]:
    return [format(value, form) if there else "" for value, there in zip(values.tolist(), known.tolist(), strict=True)]


def _set(members: np.ndarray) -> str:
    return f"{{{', '.join(map(str, np.flatnonzero(members).tolist()))}}}"
