"""`python -m molgcn.benchmark` runs in a checkout; tests/benchmarks has what it then does."""

import shutil
import subprocess
import sys

from molgcn import benchmark


def test_an_installed_package_says_where_the_benchmarks_are(tmp_path):
    shutil.copy(benchmark.__file__, tmp_path / "benchmark.py")
    done = subprocess.run([sys.executable, "benchmark.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: The benchmarks are not part of the installed package. Clone molgcn, and run pip install -e . there.\n"
