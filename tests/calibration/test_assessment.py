"""Measures of all targets at once equal those of each target and those computed by hand."""

import io
import math

import numpy as np
import pytest
from rich.console import Console

from molgcn.calibration.assessment import assess, measures_of, print_assessment
from molgcn.calibration.calibration import Calibration, TargetCalibration
from molgcn.calibration.conformal import Conformal
from molgcn.calibration.curves import Platt, ZScaling
from molgcn.calibration.measures import deviation_metrics
from molgcn.metrics.classes import class_metrics
from molgcn.tasks.distributions import MeanVariance
from molgcn.tasks.registry import build_task
from molgcn.tasks.regression import Regression

TARGETS = np.array([[1.0, 4.0], [2.0, math.nan], [3.0, 5.5], [4.0, 5.0]])


def test_without_uncertainties_there_is_nothing():
    assert assess(Regression(("a", "b"), ("", "")), None, TARGETS, TARGETS) == {}
    assert assess(build_task("classification", ("a",), ("",), 2), None, TARGETS[:, :1] / 5, np.array([[0], [1], [0], [1]])) == {}


def test_deviations_and_intervals():
    predictions = np.array([[1.5, 0.5, 4, 1], [2.0, 1, 4, 1], [2.0, 2, 4, 1], [4.5, 1, math.nan, math.nan]])
    calibration = Calibration(
        "calibration",
        0.1,
        [
            TargetCalibration(9, zscaling=ZScaling(2.0), conformal=Conformal("normalised", 0.6)),
            TargetCalibration(9, conformal=Conformal("normalised", 1.0)),
        ],
    )
    task = MeanVariance(("a", "b"), ("", ""))
    found = assess(task, calibration, predictions, TARGETS)
    error, std = np.array([-0.5, 0, 1, -0.5]), np.array([0.5, 1, 2, 1])
    own, scaled = deviation_metrics(error, std), deviation_metrics(error, 2 * std)
    assert {key.removesuffix("/a"): value for key, value in found.items() if key.endswith("/a")} == pytest.approx(
        own
        | {f"calibrated_{key}": value for key, value in scaled.items() if key != "uncertainty_spearman"}
        | {"conformal_coverage": 3 / 4, "conformal_width": 1.35}
    )
    assert (found["conformal_coverage/b"], found["conformal_width/b"]) == (1 / 2, 2)
    assert "calibrated_nll/b" not in found
    assert assess(task, None, predictions, TARGETS) == {key: found[key] for key in found if not key.startswith(("cal", "conf"))}


def test_probabilities_and_sets():
    probabilities, labels = np.array([[0.8], [0.4], [0.9], [0.2]]), np.array([[1.0], [1.0], [0.0], [math.nan]])
    calibration = Calibration("calibration", 0.1, [TargetCalibration(9, platt=Platt([0.5], [0.0]), conformal=Conformal("plain", 0.65))])
    task = build_task("classification", ("a",), ("",), 2)
    found = assess(task, calibration, probabilities, labels)
    calibrated = 1 / (1 + ((1 - probabilities[:, 0]) / probabilities[:, 0]) ** 0.5)
    assert found["calibrated_brier/a"] == pytest.approx(class_metrics(labels[:, 0], calibrated)["brier"])
    assert found["ece/a"] == pytest.approx((0.2 + 0.6 + 0.9) / 3)
    assert (found["conformal_coverage/a"], found["conformal_size/a"]) == pytest.approx((2 / 3, 4 / 3))


def test_the_table_shows_what_is_calibrated_where_something_is():
    metrics = {
        "test/nll/a": 2.0,
        "test/calibrated_nll/a": 1.0,
        "test/miscalibration_area/a": 0.25,
        "test/conformal_coverage/a": 0.5,
        "test/miscalibration_area/b": 0.125,
    }
    assert measures_of(metrics, "test", "a") == {
        "NLL": (2.0, 1.0),
        "miscalibration area": (0.25, pytest.approx(math.nan, nan_ok=True)),
        "coverage": (pytest.approx(math.nan, nan_ok=True), 0.5),
    }
    file = io.StringIO()
    print_assessment(Console(file=file, width=100), "test", "calibrated on 9 molecules", ["a", "b"], metrics)
    lines = [[cell.strip() for cell in line.split("│")[1:-1]] for line in file.getvalue().splitlines() if line.startswith("│")]
    assert lines == [["a", "1", "0.25", "0.5"], ["b", "-", "0.125", "-"]]
    assert "The uncertainties are calibrated on 9 molecules" in file.getvalue()


def test_other_metrics_make_no_table():
    """The Brier score and a loss's own likelihood are shown elsewhere already."""
    file = io.StringIO()
    print_assessment(Console(file=file), "test", "", ["a"], {"test/nll/a": 1.0, "test/brier/a": 0.1})
    assert file.getvalue() == ""
