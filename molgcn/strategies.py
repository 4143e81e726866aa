"""The ways in which the fused operator goes over a batch, by name."""

from __future__ import annotations

from molgcn.errors import UserError

STRATEGIES = ("auto", "tile", "layer")  # all layers of a tile of molecules in one kernel, or all molecules one layer after another
EARLIER = {"stack": "tile", "vertex": "layer"}  # names that still mean the same
GONE = ("edge", "neighbor_group")


def known_strategy(strategy: str) -> str:
    """Return the name of a strategy, in place of an earlier one.

    Raises:
        UserError: for a name that is none, or that of a strategy which molecules no longer have.
    """
    strategy = EARLIER.get(strategy, strategy)
    expected = f"Expected one of {', '.join(STRATEGIES)}."
    if strategy in GONE:
        raise UserError(
            f"backend.strategy={strategy} is gone: for molecules it was never the fastest, and auto never took it. {expected} On graphs of "
            f"any kind it is molgcn.ops.aggregate(..., strategy={strategy!r})."
        )
    if strategy not in STRATEGIES:
        raise UserError(f"backend.strategy={strategy} is unknown. {expected}")
    return strategy
