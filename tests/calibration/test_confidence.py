import math

import numpy as np
import pytest

from molgcn.calibration.confidence import calibration_error


def test_by_hand():
    """Bin (0.6, 0.7] has confidences 0.65 and 0.7 and one hit, bin (0.9, 1] has 1.0 and no hit."""
    probabilities = np.array([[0.65, 0.35], [0.3, 0.7], [1.0, 0.0]])
    expected = (2 * abs(1 / 2 - 0.675) + 1 * abs(0 - 1.0)) / 3
    assert calibration_error(np.array([0, 0, 1]), probabilities) == pytest.approx(expected)


def test_honest_probabilities_have_little():
    rng = np.random.default_rng(0)
    probabilities = rng.dirichlet([1, 1, 1], 20_000)
    labels = (rng.random((20_000, 1)) > probabilities.cumsum(axis=1)).sum(axis=1)
    assert calibration_error(labels, probabilities) < 0.015


def test_without_labels_it_is_undefined():
    assert math.isnan(calibration_error(np.empty(0, int), np.empty((0, 2))))
