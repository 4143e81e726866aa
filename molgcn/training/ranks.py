"""Gather the values of all processes of a run, and pick this one's again."""

from __future__ import annotations

from typing import TypeVar

import torch
from lightning import Trainer
from torch import Tensor

from molgcn.errors import UserError

Value = TypeVar("Value")


def of_all_ranks(trainer: Trainer, value: Value) -> list[Value]:
    """Return the value of each process, in their order; every process has to call this."""
    if trainer.world_size == 1:
        return [value]
    values: list[Value] = [value] * trainer.world_size
    torch.distributed.all_gather_object(values, value)
    return values


def rows_of_all_ranks(trainer: Trainer, rows: Tensor) -> Tensor:
    """Return the rows [n, ...] of all processes, in their order; every process has to call this, and n may differ among them."""
    if trainer.world_size == 1:
        return rows
    sizes = torch.zeros(trainer.world_size, dtype=torch.int64, device=rows.device)
    torch.distributed.all_gather_into_tensor(sizes, sizes.new_tensor([len(rows)]))
    counts = sizes.tolist()
    padded = rows.new_zeros(max(counts), *rows.shape[1:])
    padded[: len(rows)] = rows
    gathered = rows.new_empty(len(counts) * len(padded), *rows.shape[1:])
    torch.distributed.all_gather_into_tensor(gathered, padded)
    return torch.cat([part[:count] for part, count in zip(gathered.split(len(padded)), counts, strict=True)])


def of_this_rank(trainer: Trainer, values: list[Value]) -> Value:
    """Return the value of this process among those of :func:`of_all_ranks`.

    Raises:
        UserError: If the checkpoint was written by more or fewer processes.
    """
    if len(values) != trainer.world_size:
        raise UserError(
            f"The interrupted run had {len(values)} processes, this one has {trainer.world_size}: its batches would not be the same. "
            f"Resume with trainer.devices={len(values)}, or start a new run."
        )
    return values[trainer.global_rank]
