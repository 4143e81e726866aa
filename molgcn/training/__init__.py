"""One training run, from a configuration to a folder of results; and `MoleculeRegressor`, the module that it trains."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from molgcn.training.regressor import MoleculeRegressor as MoleculeRegressor

__all__ = ["MoleculeRegressor"]


def __getattr__(name: str) -> Any:
    """Import :class:`MoleculeRegressor`, and with it Lightning, on first use."""
    if name == "MoleculeRegressor":
        from molgcn.training.regressor import MoleculeRegressor

        return MoleculeRegressor
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
