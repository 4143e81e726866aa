"""Checks of the model's options, in words."""

from __future__ import annotations

from molgcn.errors import UserError
from molgcn.nn.init import INITIALISERS

NO_EXTENSION = (
    "backend=fused was installed without its C++ extension. With a C++17 compiler present run `pip install -e .` again, or use backend=pyg."
)


def check_sizes(in_channels: int, hidden_channels: int, num_layers: int, out_channels: int) -> None:
    """Raises UserError for the first size below 1."""
    if in_channels < 1:
        raise UserError(f"in_channels={in_channels}: expected at least one feature an atom, batch.x.shape[1].")
    if out_channels < 1:
        raise UserError(f"out_channels={out_channels}: expected at least one target, batch.targets.shape[1].")
    if hidden_channels < 1:
        raise UserError(f"model.hidden_channels={hidden_channels}: expected at least 1.")
    if num_layers < 1:
        raise UserError(f"model.num_layers={num_layers}: expected at least 1.")


def check_options(hidden_channels: int, dropout: float, norm: str | None, pool: str, head_layers: int, init: str) -> None:
    """Raises UserError for the first option that is out of range."""
    if not 0.0 <= dropout < 1.0:
        raise UserError(f"model.dropout={dropout}: expected a probability of at least 0 and below 1.")
    if norm not in (None, "batch", "layer"):
        raise UserError(f"model.norm={norm}: expected batch, layer or null.")
    if pool not in ("mean", "sum", "max"):
        raise UserError(f"model.pool={pool}: expected mean, sum or max.")
    if head_layers < 0 or hidden_channels >> head_layers < 1:
        raise UserError(
            f"model.head_layers={head_layers}: expected 0 or more, and few enough to halve {hidden_channels} channels as often."
        )
    if init not in INITIALISERS:
        raise UserError(f"model.init={init}: expected {' or '.join(INITIALISERS)}.")
