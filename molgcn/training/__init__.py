"""One training run, from a configuration to a folder of results; and `MoleculeModule`, the LightningModule that it trains."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from molgcn.training.module import MoleculeModule as MoleculeModule
    from molgcn.training.module import MoleculeModule as MoleculeRegressor

__all__ = ["MoleculeModule", "MoleculeRegressor"]


def __getattr__(name: str) -> Any:
    """Import :class:`MoleculeModule`, and with it Lightning, on first use. `MoleculeRegressor` is its earlier name."""
    if name in __all__:
        from molgcn.training.module import MoleculeModule

        return MoleculeModule
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
