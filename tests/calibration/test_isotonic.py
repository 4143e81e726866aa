import numpy as np
from sklearn.isotonic import IsotonicRegression

from molgcn.calibration.isotonic import Isotonic
from molgcn.calibration.outputs import Classes


def test_two_classes_are_scikit_learn_s_curve():
    rng = np.random.default_rng(0)
    given = rng.random(150)
    labels = (rng.random(150) < given**2).astype(float)
    fitted = Isotonic.fit(Classes(np.column_stack([1 - given, given])), labels)
    new = np.linspace(0, 1, 501)
    expected = IsotonicRegression(y_min=0, y_max=1, out_of_bounds="clip").fit(given, labels).predict(new)
    found = fitted.probabilities(Classes(np.column_stack([1 - new, new])))
    np.testing.assert_allclose(found[:, 1], expected, atol=1e-12)
    assert (np.diff(found[:, 1]) >= 0).all()


def test_more_classes_by_hand():
    """Three classes have curves of two knots each, and are equally likely where no curve gives anything."""
    fitted = Isotonic([[0.2, 0.6], [0.3, 0.5], [0.1, 0.4]], [[0.0, 0.8], [0.0, 1.0], [0.0, 0.2]])
    given = np.array([[0.4, 0.5, 0.1], [0.1, 0.2, 0.0], [0.9, 0.05, 0.25]])
    expected = np.array([[0.4, 1.0, 0.0], [1.4 / 3, 1.4 / 3, 1.4 / 3], [0.8, 0.0, 0.1]])
    np.testing.assert_allclose(fitted.probabilities(Classes(given)), expected / expected.sum(axis=1, keepdims=True), rtol=1e-12)
