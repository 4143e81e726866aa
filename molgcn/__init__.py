"""molgcn: the fastest way to train graph networks on molecules."""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from molgcn.model import load as load

__all__ = ["load"]

# PyTorch's OpenMP reads this when it is loaded. Its threads spin for milliseconds at every barrier, which beside other busy processes is
# time that no thread computes in; after this many turns, some 70 us, they sleep. docs/decisions/cpu_operator.md has the figures.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")


def __getattr__(name: str) -> Any:
    """Imports torch and Lightning, which take seconds, only when a model is asked for."""
    if name == "load":
        from molgcn.model import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
