"""The package can be imported."""

import os
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("given", "expected"),
    [({}, "3000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, "None")],
    ids=["default", "a count", "a policy"],
)
def test_threads_spin_briefly_unless_the_user_says_otherwise(given, expected):
    kept = {name: value for name, value in os.environ.items() if name not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    code = "import sys, molgcn, os; assert 'torch' not in sys.modules; print(os.environ.get('GOMP_SPINCOUNT'))"
    done = subprocess.run([sys.executable, "-c", code], env=kept | given, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == expected
