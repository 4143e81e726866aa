"""Digits are stored and written if they tell values apart."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from molgcn.data.digits import digits_of, significant_digits, stored


@pytest.mark.parametrize(
    ("magnitude", "spread", "digits"),
    [(3, 1, 7), (0, 0, 7), (100, 1, 7), (-101, 1, 8), (5_000, 1e-3, 12), (1e8, 1, 13), (1e30, 1, 17), (1e8, 0, 13)],
)
def test_digits_show_a_ten_thousandth_of_the_spread(magnitude, spread, digits):
    assert significant_digits(magnitude, spread) == digits


@given(st.floats(-1e9, 1e9), st.floats(1e-3, 1e3), st.integers(2, 30))
@example(1e9, 1.125, 9)
def test_what_is_stored_and_what_is_written_keep_the_spread(center, spread, count):
    values = center + spread * np.linspace(-1, 1, count)
    bound = 0.5e-4 * np.ptp(values) / 2  # half a unit of the last digit; the middle half of the values spreads over half of them
    np.testing.assert_allclose(stored(values[:, None])[:, 0].astype(float), values, rtol=0, atol=bound)
    written = [float(f"{value:.{digits_of(values)}g}") for value in values]
    np.testing.assert_allclose(written, values, rtol=0, atol=bound)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1.0, 2.0, np.nan, -3.0], np.float32),
        ([np.nan, np.nan], np.float32),
        ([0.1] * 5, np.float32),
        ([0, 0, 0, 0, 1], np.float32),
        ([*np.linspace(0, 1, 50), 1e9], np.float32),  # an outlier has digits enough for itself
        ([*(1e8 + np.linspace(0, 1, 50)), 0.0], np.float64),  # and does not hide the others' spread
        ([5_000 + 1e-3, 5_000 - 1e-3, np.nan, 5_000], np.float64),
        ([1e8 + 0.3], np.float64),
    ],
)
def test_float64_only_where_float32_loses_digits(values, dtype):
    kept = stored(np.array(values, dtype=float)[:, None])
    assert kept.dtype == dtype
    assert stored(np.array(values, np.float32)[:, None]).dtype == np.float32  # there are no more digits to keep
    np.testing.assert_array_equal(kept[:, 0], np.array(values).astype(dtype))
