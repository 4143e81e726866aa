import math

import numpy as np

from molgcn.calibration.calibration import Calibration, TargetCalibration
from molgcn.calibration.columns import calibrated_columns
from molgcn.calibration.conformal import Conformal
from molgcn.calibration.curves import Platt, ZScaling
from molgcn.data.target_config import TargetConfig
from molgcn.tasks.distributions import MeanVariance
from molgcn.tasks.registry import build_task


def cells(calibration, task, predictions, digits):
    return {column.name: column.cells for column in calibrated_columns(calibration, task, predictions, digits)}


def test_numbers():
    """Bounds are written in the target's digits, deviations in seven, and a row without prediction has neither."""
    fitted = TargetCalibration(9, zscaling=ZScaling(2.0), conformal=Conformal("normalised", 3.0))
    calibration = Calibration("calibration", 0.1, [fitted, TargetCalibration(9, conformal=Conformal("normalised", math.inf))])
    task = MeanVariance(("a", "b"), ("", "eV"))
    predictions = np.array([[1 / 3, 0.1, 5.0, 1.0], [math.nan] * 4])
    assert cells(calibration, task, predictions, [9, 9, 8, 8]) == {
        "a calibrated std": ["0.2", "nan"],
        "a conformal lower": ["0.0333333333", "nan"],
        "a conformal upper": ["0.633333333", "nan"],
        "b [eV] conformal lower": ["-inf", "nan"],
        "b [eV] conformal upper": ["inf", "nan"],
    }


def test_two_classes():
    fitted = TargetCalibration(9, platt=Platt([1.0], [0.0]), conformal=Conformal("plain", 0.7))
    calibration = Calibration("calibration", 0.1, [fitted])
    task = build_task("classification", ("a",), ("",), 2)
    predictions = np.array([[0.25], [0.6], [math.nan]])
    assert cells(calibration, task, predictions, [7]) == {
        "a calibrated probability": ["0.25", "0.6", "nan"],
        "a conformal set": ["{0}", "{0, 1}", ""],
    }


def test_more_classes():
    fitted = TargetCalibration(9, platt=Platt([1.0] * 3, [0.0] * 3), conformal=Conformal("plain", 0.3))
    calibration = Calibration("calibration", 0.1, [fitted])
    task = build_task("multiclass", ("a",), ("",), 3)
    predictions = np.array([[0.2, 0.75, 0.05], [0.4, 0.4, 0.2], [math.nan] * 3])
    assert cells(calibration, task, predictions, [7] * 3) == {
        "a calibrated probability 0": ["0.2", "0.4", "nan"],
        "a calibrated probability 1": ["0.75", "0.4", "nan"],
        "a calibrated probability 2": ["0.05", "0.2", "nan"],
        "a conformal set": ["{1}", "{}", ""],
    }


def test_classes_with_names():
    fitted = TargetCalibration(9, platt=Platt([1.0], [0.0]), conformal=Conformal("plain", 0.7))
    task = build_task("classification", ("a",), ("",), 2, TargetConfig(labels={"a": {"inactive": 0, "active": 1}}))
    assert cells(Calibration("calibration", 0.1, [fitted]), task, np.array([[0.25], [0.6]]), [7]) == {
        "a calibrated probability active": ["0.25", "0.6"],
        "a conformal set": ["{inactive}", "{inactive, active}"],
    }
