"""The names of the strategies by which the fused operator computes a batch."""

from __future__ import annotations

from molgcn.errors import UserError

STRATEGIES = ("auto", "tile", "layer")  # all layers of a tile of molecules in one kernel, or all molecules one layer after another
EARLIER = {"stack": "tile", "vertex": "layer"}  # names that still mean the same
GONE = ("edge", "neighbor_group")  # strategies of earlier versions


def known_strategy(strategy: str) -> str:
    """Return the present name of a strategy.

    Raises:
        UserError: for an unknown name, or for a strategy that no longer exists for molecules.
    """
    strategy = EARLIER.get(strategy, strategy)
    expected = f"Expected one of {', '.join(STRATEGIES)}."
    if strategy in GONE:
        raise UserError(
            f"backend.strategy={strategy} is gone: for molecules it was never the fastest, and auto never took it. {expected} For graphs "
            f"of any kind it lives on as molgcn.ops.aggregate(..., strategy={strategy!r})."
        )
    if strategy not in STRATEGIES:
        raise UserError(f"backend.strategy={strategy} is unknown. {expected}")
    return strategy
