"""The names of the strategies by which the fused operator computes a batch."""

from typing import Literal, get_args

Strategy = Literal["auto", "tile", "layer"]  # all layers of a tile of molecules in one kernel, or all molecules one layer after another
STRATEGIES = get_args(Strategy)
