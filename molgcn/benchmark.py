"""`python -m molgcn.benchmark`: compare the backends on this machine, from a checkout, which has the benchmarks beside the package."""

from __future__ import annotations

import sys
from pathlib import Path

_BENCHMARKS = Path(__file__).resolve().parents[1] / "benchmarks"


def main() -> None:
    """Run the benchmarks of the checkout that this package belongs to. An installed package has none, and says so."""
    if not (_BENCHMARKS / "molgcn_benchmark").is_dir():
        print("Error: The benchmarks are not part of the installed package. Clone molgcn, and run pip install -e . there.", file=sys.stderr)
        sys.exit(2)
    sys.path.append(str(_BENCHMARKS))
    from molgcn_benchmark.command import main as compare

    compare()


if __name__ == "__main__":
    main()
