"""molgcn: the fastest way to train graph networks on molecules."""

import os

# PyTorch's OpenMP reads this when it is loaded. Its threads spin for milliseconds at every barrier, which beside other busy processes is
# time that no thread computes in; after this many turns, some 70 us, they sleep. docs/decisions/cpu_operator.md has the figures.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")
