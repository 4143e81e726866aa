"""One training run, from a configuration to a folder of results; its module, and its optimiser and moving average for loops of your own."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from molgcn.training.clipped_adam import ClippedAdam as ClippedAdam
    from molgcn.training.ema import ExponentialMovingAverage as ExponentialMovingAverage
    from molgcn.training.module import MoleculeModule as MoleculeModule
    from molgcn.training.module import MoleculeModule as MoleculeRegressor

__all__ = ["ClippedAdam", "ExponentialMovingAverage", "MoleculeModule", "MoleculeRegressor"]

_HOMES = {"ClippedAdam": "clipped_adam", "ExponentialMovingAverage": "ema", "MoleculeModule": "module"}
_EARLIER = {"MoleculeRegressor": "MoleculeModule"}


def __getattr__(name: str) -> Any:
    """Import a class, and with :class:`MoleculeModule` Lightning, on first use. `MoleculeRegressor` is its earlier name."""
    name = _EARLIER.get(name, name)
    if name in _HOMES:
        return getattr(import_module(f"molgcn.training.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
