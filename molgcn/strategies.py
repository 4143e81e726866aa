"""The ways in which the fused operator goes over a batch, by name."""

from __future__ import annotations

from molgcn.errors import UserError

STRATEGIES = ("auto", "stack", "vertex")
GONE = ("edge", "neighbor_group")


def check_known(strategy: str) -> None:
    """Check the name of a strategy.

    Raises:
        UserError: for a name that is none, or that of a strategy which molecules no longer have.
    """
    expected = f"Expected one of {', '.join(STRATEGIES)}."
    if strategy in GONE:
        raise UserError(f"backend.strategy={strategy} is gone: for molecules it was never the fastest, and auto never took it. {expected}")
    if strategy not in STRATEGIES:
        raise UserError(f"backend.strategy={strategy} is unknown. {expected}")
