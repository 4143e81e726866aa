"""Write predictions beside the true values, as a CSV file."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from molgcn.data.digits import digits_of
from molgcn.data.packed import PackedMolecules
from molgcn.files.spreadsheet import Writer
from molgcn.files.whole_file import whole
from molgcn.tasks.base import Task

_SIGNS = {-1: "<", 0: "", 1: ">"}  # how bounds are written


def write_predictions(path: Path, task: Task, molecules: PackedMolecules, predictions: np.ndarray) -> None:
    """Write a CSV file with one line per molecule: `row`, `smiles`, and for every target the true value and its predictions.

    Args:
        path: the file.
        task: the task of the targets.
        molecules: M molecules with their targets.
        predictions: [M, P], from :meth:`Task.decode`.
    """
    columns = task.columns
    header = ["row", "smiles", *(name for pair in zip(task.labels, columns, strict=True) for name in (pair[0], *pair[1]))]
    smiles = molecules.smiles or [""] * len(molecules)
    forms = [f".{digits_of(values)}g" for values in molecules.targets.T]
    ends = np.cumsum([len(names) for names in columns])[:-1]
    with whole(path) as temporary, open(temporary, "w", newline="") as file:
        writer = Writer(file)
        writer.writerow(header)
        for i, (true, predicted) in enumerate(zip(molecules.targets, predictions, strict=True)):
            signs = [""] * len(true) if molecules.bounds is None else [_SIGNS[bound] for bound in molecules.bounds[i].tolist()]
            cells: list[str] = []
            for sign, one, some, form in zip(signs, true, np.split(predicted, ends), forms, strict=True):
                cells += [sign + _cell(one, form), *(_cell(value, form) for value in some)]
            writer.writerow([int(molecules.rows[i]), smiles[i], *cells])


def _cell(value: float, form: str) -> str:
    return "" if math.isnan(value) else format(value, form)
