"""The rows of padding that a batch in its slot's full shape has behind its own."""

from __future__ import annotations

import torch
from torch import Tensor


def without_padding(rows: Tensor, count: Tensor | None) -> Tensor:
    """Return rows [R, C] of atoms or bonds with those of the padding set to 0.

    All padding bonds meet at one atom. What it sums would grow by their number in every layer until it overflows, and infinity times a
    gradient of 0 is NaN.

    Args:
        rows: [R, C], the padding's rows last.
        count: integer [], the real rows, on the device of `rows`; None where all are real.
    """
    if count is None:
        return rows
    return torch.where(first_rows(rows, count)[:, None], rows, 0)


def first_rows(rows: Tensor, count: Tensor) -> Tensor:
    """Return which of rows [R, ...] are the first `count`, bool [R]; `count` is an integer [] on their device."""
    return torch.arange(rows.shape[0], device=rows.device) < count
