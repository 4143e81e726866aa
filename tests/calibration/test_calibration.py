"""Calibrations are fitted for all targets, and have plain values."""

import json
import math

import numpy as np
import pytest

from molgcn.calibration.calibration import Calibration, TargetCalibration
from molgcn.calibration.conformal import Conformal
from molgcn.calibration.methods import chosen_methods, suits
from molgcn.calibration.outputs import Classes, Numbers, outputs_of
from molgcn.data.target_config import TargetConfig
from molgcn.tasks.distributions import MeanVariance, Quantile
from molgcn.tasks.registry import build_task
from molgcn.tasks.regression import Regression


def task_of(kind):
    kinds = {"mve": MeanVariance, "quantile": Quantile, "regression": Regression}
    if kind in kinds:
        return kinds[kind](("a", "b"), ("", "eV"))
    return build_task(kind, ("a", "b"), ("", ""), {"classification": 2, "multiclass": 3}[kind])


METHODS = {
    "regression": ["conformal"],
    "mve": ["zscaling", "conformal"],
    "quantile": ["conformal"],
    "classification": ["platt", "conformal"],
    "multiclass": ["isotonic", "conformal"],
}


def draw(kind, count=60, seed=0):
    """Return a task, predictions [count, P] and targets [count, 2] with missing ones."""
    rng, task = np.random.default_rng(seed), task_of(kind)
    if task.num_classes:
        given = rng.dirichlet(np.ones(task.num_classes), (count, 2))
        predictions = given[..., 1] if task.num_classes == 2 else given.reshape(count, -1)
        targets = (rng.random((count, 2, 1)) > given.cumsum(axis=2)).sum(axis=2).astype(float)
    else:
        values, scale = rng.normal(size=(count, 2)), rng.uniform(0.5, 2, (count, 2))
        further = {"regression": [], "mve": [scale], "quantile": [values - scale, values + scale]}[kind]
        predictions = np.stack([values, *further], axis=2).reshape(count, -1)
        targets = values + scale * rng.normal(size=(count, 2))
    targets[rng.random((count, 2)) < 0.2] = math.nan
    return task, predictions, targets


def fitted(kind, alpha=0.2, **options):
    task, predictions, targets = draw(kind, **options)
    found = [
        TargetCalibration.fit(output, true, METHODS[kind], alpha, "plain")
        for output, true in zip(outputs_of(task, predictions), targets.T, strict=True)
    ]
    return task, Calibration("calibration", alpha, found)


@pytest.mark.parametrize("kind", METHODS)
def test_plain_values_lead_back_to_the_same(kind):
    task, calibration = fitted(kind)
    values = calibration.to_values()
    assert json.loads(json.dumps(values)) == values
    assert Calibration.of_values(values, task) == calibration


def test_an_infinite_threshold_is_kept():
    task, calibration = fitted("regression", count=5, alpha=0.01)
    assert calibration.targets[0].conformal.threshold == math.inf
    assert Calibration.of_values(calibration.to_values(), task) == calibration


@pytest.mark.parametrize("kind", METHODS)
def test_targets_are_fitted_on_the_molecules_whose_value_is_known_and_predicted(kind):
    task, predictions, targets = draw(kind)
    output, true = outputs_of(task, predictions)[1], targets[:, 1]
    known = ~np.isnan(true)
    alone = TargetCalibration.fit(output[known], true[known], METHODS[kind], 0.2, "adaptive")
    broken = predictions.copy()
    broken[np.flatnonzero(~known)] = math.nan
    assert TargetCalibration.fit(outputs_of(task, broken)[1], true, METHODS[kind], 0.2, "adaptive") == alone
    assert alone.molecules == known.sum()


def test_what_predictions_say_of_each_target():
    first, second = outputs_of(task_of("mve"), np.array([[1.0, 0.5, 3.0, 0.25]]))
    assert isinstance(first, Numbers) and (first.values, first.std, first.interval) == (1.0, 0.5, None)
    assert (second.values, second.std) == (3.0, 0.25)
    (output, _) = outputs_of(task_of("quantile"), np.array([[1.0, 0.5, 3.0, 0.0, 0.0, 0.0]]))
    assert output.interval.tolist() == [[0.5, 3.0]] and output.std is None
    (output, _) = outputs_of(task_of("classification"), np.array([[0.25, 0.5]]))
    assert isinstance(output, Classes) and output.probabilities.tolist() == [[0.75, 0.25]]


def damaged(values, kind):
    first = values["targets"][0]
    if kind == "missing":
        del first["molecules"]
    elif kind == "text":
        first["conformal"]["threshold"] = "much"
    elif kind == "score":
        first["conformal"]["score"] = "quantile"
    elif kind == "part":
        values["part"] = "train"
    elif kind == "fewer":
        values["targets"].pop()
    elif kind == "classes":
        first["platt"]["slope"].append(1.0)
    return values


@pytest.mark.parametrize("kind", ["missing", "text", "score", "part", "fewer", "classes"])
def test_values_that_do_not_fit_are_refused(kind):
    task, calibration = fitted("classification")
    with pytest.raises(ValueError, match=r"its calibration (is damaged|belongs to other targets)"):
        Calibration.of_values(damaged(calibration.to_values(), kind), task)


@pytest.mark.parametrize("value", [[], "x", 3, {"targets": []}])
def test_what_is_no_calibration_is_refused(value):
    with pytest.raises(ValueError, match="calibration is damaged"):
        Calibration.of_values(value, task_of("regression"))


@pytest.mark.parametrize("other", ["regression", "classification", "multiclass", "quantile"])
def test_the_calibration_of_another_task_is_refused(other):
    _, calibration = fitted("mve")
    with pytest.raises(ValueError, match="belongs to other targets"):
        Calibration.of_values(calibration.to_values(), task_of(other))


def test_it_says_what_it_rests_on():
    conformal = Conformal("absolute", 1.0)
    targets = [TargetCalibration(1200, conformal=conformal), TargetCalibration(30, conformal=conformal), TargetCalibration(2)]
    assert Calibration("calibration", 0.1, targets).described == "calibrated on 30 to 1,200 molecules that training did not see"
    approximate = Calibration("val", 0.1, targets[:1])
    assert approximate.described == "calibrated on 1,200 validation molecules, which chose the weights: approximate"
    assert approximate.approximate


def test_a_mixed_task_s_targets_are_calibrated_each_by_its_own_kind():
    task = build_task("mixed", ("a", "b"), ("", ""), 2, TargetConfig(tasks={"a": "classification", "b": "regression"}))
    classes, numbers = outputs_of(task, np.array([[0.25, -3.0], [0.5, 4.0]]))
    assert isinstance(classes, Classes) and classes.probabilities[:, 1].tolist() == [0.25, 0.5]
    assert isinstance(numbers, Numbers) and numbers.values.tolist() == [-3, 4]
    assert chosen_methods("auto", task) == ("platt", "conformal")
    fitted = [
        TargetCalibration.fit(output, np.array([0.0, 1.0]), [name for name in ("platt", "conformal") if suits(name, output)], 0.5, "plain")
        for output in (classes, numbers)
    ]
    assert [one.platt is not None for one in fitted] == [True, False]
    calibration = Calibration("calibration", 0.5, fitted)
    assert Calibration.of_values(calibration.to_values(), task) == calibration
