"""What each process of a run has for itself, in the one checkpoint that they write."""

from __future__ import annotations

from typing import TypeVar

import torch
from lightning import Trainer
from torch import Tensor

from molgcn.errors import UserError

Value = TypeVar("Value")


def of_all_ranks(trainer: Trainer, value: Value) -> list[Value]:
    """The value of each process in their order; all of them have to ask."""
    if trainer.world_size == 1:
        return [value]
    values: list[Value] = [value] * trainer.world_size
    torch.distributed.all_gather_object(values, value)
    return values


def rows_of_all_ranks(trainer: Trainer, rows: Tensor) -> Tensor:
    """The rows [n, ...] of all processes, in their order; their numbers may differ, and all of the processes have to ask."""
    if trainer.world_size == 1:
        return rows
    return torch.cat(of_all_ranks(trainer, rows.cpu())).to(rows.device)


def of_this_rank(trainer: Trainer, values: list[Value]) -> Value:
    """This process's value among those of :func:`of_all_ranks`.

    Raises:
        UserError: when the checkpoint is of a run with more or fewer processes.
    """
    if len(values) != trainer.world_size:
        raise UserError(
            f"The interrupted run had {len(values)} processes, this one has {trainer.world_size}: its batches would not be the same. "
            f"Resume with trainer.devices={len(values)}, or start a new run."
        )
    return values[trainer.global_rank]
