"""benchmarks/counters.py accepts the launches of the fused GCN's kernels alone."""

import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from molgcn.errors import UserError
from molgcn_benchmark.nsight_compute import Launch

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "counters.py"


@pytest.fixture(scope="module")
def script():
    return SimpleNamespace(**runpy.run_path(str(SCRIPT)))


def launched(kernels):
    return [Launch(kernel, {}) for kernel in kernels]


def test_its_kernels_are_accepted(script):
    assert script.checked(launched(script.KERNELS)) == launched(script.KERNELS)


def test_other_kernels_are_refused(script):
    with pytest.raises(UserError, match=r"expected the kernels \['gcn_tile_forward', .*found \['gcn_tile_backward'"):
        script.checked(launched(script.KERNELS[3:]))


def test_every_title_has_a_metric_of_its_own(script):
    names = [name for metric in script.METRICS.values() for name in metric.names]
    assert len(names) == len(set(names))
