"""molgcn trains graph networks on molecules."""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from molgcn.estimators import Classifier as Classifier
    from molgcn.estimators import Regressor as Regressor
    from molgcn.model import load as load
    from molgcn.training.own_loop.capture import capture as capture

__all__ = ["Classifier", "Regressor", "capture", "load"]

_HOMES = {
    "Classifier": "molgcn.estimators",
    "Regressor": "molgcn.estimators",
    "capture": "molgcn.training.own_loop.capture",
    "load": "molgcn.model",
}

# PyTorch's OpenMP reads this when it is loaded. By default its threads spin for milliseconds at every barrier, which takes time from
# other busy threads. With this setting they sleep after some 70 us. docs/decisions/cpu_operator.md has the figures.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")


def __getattr__(name: str) -> Any:
    """Import torch, and for `load` Lightning, which takes seconds, only when one of the functions is asked for."""
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
