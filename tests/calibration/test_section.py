"""The report's section shows the calibration."""

import numpy as np

from molgcn.calibration.assessment import assess
from molgcn.calibration.calibration import Calibration, TargetCalibration
from molgcn.calibration.conformal import Conformal
from molgcn.calibration.curves import ZScaling
from molgcn.calibration.section import uncertainty_of
from molgcn.tasks.distributions import MeanVariance
from molgcn.tasks.registry import build_task
from molgcn.tasks.regression import Regression

RNG = np.random.default_rng(0)


def section(task, calibration, predictions, targets):
    metrics = {f"test/{key}": value for key, value in assess(task, calibration, predictions, targets).items()}
    return uncertainty_of(task, calibration, metrics, "test", predictions, targets)


def test_without_uncertainties_there_is_none():
    values = RNG.normal(size=(20, 1))
    assert section(Regression(("a",), ("",)), None, values, values) is None


def test_deviations_are_drawn_before_and_after():
    predictions = np.column_stack([RNG.normal(size=40), RNG.uniform(0.5, 2, 40)])
    targets = predictions[:, :1] + RNG.normal(size=(40, 1))
    targets[::7] = np.nan
    task = MeanVariance(("a",), ("",))
    plain = section(task, None, predictions, targets)
    assert (plain.about, plain.approximate, plain.missed) == ("", False, None)
    assert np.isnan(plain.measures["a"]["miscalibration area"][1])
    fitted = TargetCalibration(30, zscaling=ZScaling(2.0), conformal=Conformal("normalised", 2.0))
    shown = section(task, Calibration("val", 0.2, [fitted]), predictions, targets)
    assert shown.approximate and shown.missed == 0.2 and "30 validation molecules" in shown.about
    assert list(shown.measures["a"]) == ["NLL", "miscalibration area", "ENCE", "Spearman", "coverage", "width"]
    assert not np.isnan(shown.measures["a"]["miscalibration area"]).any()
    assert shown.pictures["a"].startswith("data:image/svg+xml;base64,") and shown.pictures["a"] != plain.pictures["a"]


def test_a_target_without_labels_has_no_picture():
    predictions, targets = RNG.random((20, 2)), np.full((20, 2), np.nan)
    targets[:, 0] = RNG.integers(0, 2, 20)
    calibration = Calibration("calibration", 0.1, [TargetCalibration(9, conformal=Conformal("plain", 0.8))] * 2)
    shown = section(build_task("classification", ("a", "b"), ("", ""), 2), calibration, predictions, targets)
    assert list(shown.pictures) == ["a"] and np.isnan(shown.measures["b"]["coverage"]).all()
