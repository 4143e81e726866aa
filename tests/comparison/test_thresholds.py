"""The threshold has the largest Matthews correlation coefficient of all thresholds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import matthews_corrcoef

from molgcn.comparison.compare import best_threshold

ROWS = st.lists(st.tuples(st.integers(-1, 1), st.integers(0, 12)), min_size=2, max_size=40)


@given(ROWS)
def test_no_threshold_is_better(rows):
    labels, numbers = (np.array(column, float) for column in zip(*rows, strict=True))
    known, probabilities = labels >= 0, numbers / 12
    found = best_threshold(np.where(known, labels, math.nan), probabilities)
    true, given = labels[known], probabilities[known]
    if len(set(true)) < 2 or len(set(given)) < 2:
        assert found is None
        return
    levels = np.unique(given)
    values = {cut: matthews_corrcoef(true, given > cut) for cut in (levels[1:] + levels[:-1]) / 2}
    assert found.mcc == pytest.approx(max(values.values()), abs=1e-12) == pytest.approx(values[found.value], abs=1e-12)
    equal = [abs(cut - 0.5) for cut, value in values.items() if value > found.mcc - 1e-9]
    assert abs(found.value - 0.5) == pytest.approx(min(equal))


def test_predictions_that_are_not_finite_do_not_count():
    found = best_threshold(np.array([0.0, 1.0, 1.0]), np.array([0.1, 0.3, math.nan]))
    assert (found.value, found.mcc) == pytest.approx((0.2, 1.0))
