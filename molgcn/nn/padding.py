"""Masks for the rows of padding that fill up a batch to the shape of its slot."""

from __future__ import annotations

import torch
from torch import Tensor


def without_padding(rows: Tensor, count: Tensor | None) -> Tensor:
    """Return rows [R, C] of atoms or bonds, of which the first `count` are real, with the others set to 0; None means that all are real.

    All padding bonds meet at one atom. Without this, that atom's state would grow by their number in every layer until it overflows, and
    infinity times a gradient of 0 is NaN.
    """
    if count is None:
        return rows
    return torch.where(first_rows(rows, count)[:, None], rows, 0)


def first_rows(rows: Tensor, count: Tensor) -> Tensor:
    """Return a mask, bool [R], of the first `count` of rows [R, ...]; `count` is an integer [] on the device of `rows`."""
    return torch.arange(rows.shape[0], device=rows.device) < count
