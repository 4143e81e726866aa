"""The calibration of standard deviations and of class probabilities agrees with scikit-learn, scipy and values by hand."""

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, logit
from sklearn.isotonic import IsotonicRegression

from molgcn.calibration.curves import Isotonic, Platt, ZScaling
from molgcn.calibration.measures import nll
from molgcn.calibration.outputs import Classes, Numbers


def test_the_factor_is_where_scipy_finds_the_least_nll():
    rng = np.random.default_rng(0)
    std = rng.uniform(0.1, 3, 200)
    values, true = np.zeros(200), rng.standard_t(4, 200) * std * 2.5
    fitted = ZScaling.fit(Numbers(values, std), true)
    found = minimize_scalar(lambda scale: nll(true, scale * std), bounds=(0.01, 100), method="bounded", options={"xatol": 1e-10})
    assert fitted.scale == pytest.approx(found.x, rel=1e-6)
    np.testing.assert_allclose(fitted.std(Numbers(values, std)), fitted.scale * std)


def test_zscaling_by_hand():
    assert ZScaling.fit(Numbers(np.zeros(2), np.array([1.0, 2.0])), np.array([3.0, -2.0])).scale == pytest.approx(np.sqrt(5))


def test_isotonic_of_two_classes_is_scikit_learn_s_curve():
    rng = np.random.default_rng(0)
    given = rng.random(150)
    labels = (rng.random(150) < given**2).astype(float)
    fitted = Isotonic.fit(Classes(np.column_stack([1 - given, given])), labels)
    new = np.linspace(0, 1, 501)
    expected = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(given, labels).predict(new)
    found = fitted.probabilities(Classes(np.column_stack([1 - new, new])))
    np.testing.assert_allclose(found[:, 1], expected, atol=1e-12)
    assert (np.diff(found[:, 1]) >= 0).all()


def test_isotonic_of_more_classes_by_hand():
    """Three classes have curves of two knots each, and are equally likely where no curve gives anything."""
    fitted = Isotonic([[0.2, 0.6], [0.3, 0.5], [0.1, 0.4]], [[0.0, 0.8], [0.0, 1.0], [0.0, 0.2]])
    given = np.array([[0.4, 0.5, 0.1], [0.1, 0.2, 0.0], [0.9, 0.05, 0.25]])
    expected = np.array([[0.4, 1.0, 0.0], [1.4 / 3, 1.4 / 3, 1.4 / 3], [0.8, 0.0, 0.1]])
    np.testing.assert_allclose(fitted.probabilities(Classes(given)), expected / expected.sum(axis=1, keepdims=True), rtol=1e-12)


def binary(seed, count=300):
    rng = np.random.default_rng(seed)
    given = rng.beta(0.5, 0.5, count)
    return given, (rng.random(count) < expit(0.4 * logit(given) - 0.7)).astype(float)


def columns(given):
    return Classes(np.column_stack([1 - given, given]))


def test_platt_is_the_likeliest_curve_for_platt_s_targets():
    given, labels = binary(0)
    fitted = Platt.fit(columns(given), labels)
    positive = labels.sum()
    target = np.where(labels == 1, (positive + 1) / (positive + 2), 1 / (len(labels) - positive + 2))

    def loss(curve):
        found = expit(curve[0] * logit(given) + curve[1])
        return -np.mean(target * np.log(found) + (1 - target) * np.log1p(-found))

    found = minimize(loss, [1, 0], method="BFGS", options={"gtol": 1e-9}).x
    np.testing.assert_allclose([fitted.slope[0], fitted.intercept[0]], found, rtol=1e-4, atol=1e-5)
    probabilities = fitted.probabilities(columns(given))
    np.testing.assert_allclose(probabilities[:, 1], expit(found[0] * logit(given) + found[1]), atol=1e-5)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-15)


@pytest.mark.parametrize("given", [[0.1, 0.2, 0.8, 0.9], [0.0, 0.0, 1.0, 1.0]])
def test_classes_that_can_be_told_apart_give_a_finite_curve(given):
    fitted = Platt.fit(columns(np.array(given)), np.array([0.0, 0.0, 1.0, 1.0]))
    assert 0 < fitted.slope[0] < 20
    assert np.isfinite(fitted.probabilities(columns(np.array([0.0, 0.5, 1.0])))).all()


def test_platt_calibrates_more_classes_one_at_a_time_to_a_sum_of_one():
    rng = np.random.default_rng(3)
    given = rng.dirichlet([1, 1, 1], 200)
    labels = np.array([rng.choice(3, p=row) for row in given]).astype(float)
    fitted = Platt.fit(Classes(given), labels)
    assert len(fitted.slope) == len(fitted.intercept) == 3
    each = np.stack([expit(fitted.slope[one] * logit(given[:, one]) + fitted.intercept[one]) for one in range(3)], axis=1)
    np.testing.assert_allclose(fitted.probabilities(Classes(given)), each / each.sum(axis=1, keepdims=True), rtol=1e-12)
    alone = Platt.fit(columns(given[:, 2]), (labels == 2).astype(float))
    assert (alone.slope[0], alone.intercept[0]) == pytest.approx((fitted.slope[2], fitted.intercept[2]), rel=1e-6)
