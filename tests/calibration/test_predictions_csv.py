"""The file of predictions shows every target's true value and predictions."""

from __future__ import annotations

import csv
import math

import numpy as np
import pytest

from molgcn.calibration.calibration import Calibration, TargetCalibration
from molgcn.calibration.columns import prediction_columns, write_predictions
from molgcn.calibration.conformal import Conformal
from molgcn.data import PackedMolecules
from molgcn.files.column import Column
from molgcn.tasks.regression import Regression


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))


def test_predictions_file(tmp_path):
    targets = np.array([[1.5, math.nan], [2.0, 3.0], [-4.25, 1e-9]])
    packed = PackedMolecules.from_smiles(["C", "CC", "CCO"], targets, features="general")[[2, 0]]
    task = Regression(("gap", "mu"), ("eV", ""))
    predictions, deviation = np.array([[1 / 3, 2.0], [-1.0, math.nan]]), np.array([[0.5, 0.25], [math.nan] * 2])
    conformal = TargetCalibration(9, conformal=Conformal("absolute", 1.0))
    calibration = Calibration("calibration", 0.1, [conformal, TargetCalibration(0)])
    write_predictions(tmp_path / "p.csv", task, packed, *prediction_columns(task, predictions, deviation, calibration, [7, 7]))
    assert rows_of(tmp_path / "p.csv") == [
        [
            *("row", "smiles", "gap [eV]", "gap [eV] predicted", "gap [eV] predicted std", "mu", "mu predicted", "mu predicted std"),
            *("gap [eV] conformal lower", "gap [eV] conformal upper"),
        ],
        ["2", "CCO", "-4.25", "0.3333333", "0.5", "1e-09", "2", "0.25", "-0.6666667", "1.333333"],
        ["0", "C", "1.5", "-1", "", "", "", "", "-2", "0"],
    ]


@pytest.mark.parametrize("text", ["=1+1", "+A1", "-A1", "@SUM(A1)", "\t=1", "\r=1", " \n@x"])
def test_formulas_are_inert(tmp_path, text):
    expected = "'" + text.replace("\r", "\n")
    packed = PackedMolecules.from_arrays(
        np.array([1]), np.array([0]), np.zeros((2, 0), int), x=np.ones((1, 2)), targets=np.ones((1, 1)), smiles=[text]
    )
    write_predictions(tmp_path / "p.csv", Regression((text,), ("",)), packed, [[Column(f"{text} predicted", np.ones(1))]])
    header, row = rows_of(tmp_path / "p.csv")
    assert header[2] == row[1] == expected
