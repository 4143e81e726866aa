"""molgcn trains graph networks on molecules."""

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from molgcn.model import load as load

__all__ = ["load"]

# PyTorch's OpenMP reads this when it is loaded. By default its threads spin for milliseconds at every barrier, which takes time from
# other busy threads. With this setting they sleep after some 70 us. docs/decisions/cpu_operator.md has the figures.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")


def __getattr__(name: str) -> Any:
    """Import torch and Lightning, which takes seconds, only when `load` is asked for."""
    if name == "load":
        from molgcn.model import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
