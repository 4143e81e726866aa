import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from molgcn.calibration.deviations import nll
from molgcn.calibration.outputs import Numbers
from molgcn.calibration.zscaling import ZScaling


def test_the_factor_is_where_scipy_finds_the_least_nll():
    rng = np.random.default_rng(0)
    std = rng.uniform(0.1, 3, 200)
    values, true = np.zeros(200), rng.standard_t(4, 200) * std * 2.5
    fitted = ZScaling.fit(Numbers(values, std), true)
    found = minimize_scalar(lambda scale: nll(true, scale * std), bounds=(0.01, 100), method="bounded", options={"xatol": 1e-10})
    assert fitted.scale == pytest.approx(found.x, rel=1e-6)
    np.testing.assert_allclose(fitted.std(Numbers(values, std)), fitted.scale * std)


def test_by_hand():
    assert ZScaling.fit(Numbers(np.zeros(2), np.array([1.0, 2.0])), np.array([3.0, -2.0])).scale == pytest.approx(np.sqrt(5))
