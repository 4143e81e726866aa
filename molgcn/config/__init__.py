"""The configuration: dataclasses that check it, its values on the command line, and the names of strategies."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from molgcn.config.run import Config as Config
    from molgcn.config.run import parse as parse

__all__ = ["Config", "parse"]


def __getattr__(name: str) -> Any:
    """Import the dataclasses, and with them pydantic, when they are first asked for."""
    if name in __all__:
        from molgcn.config import run

        return getattr(run, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
