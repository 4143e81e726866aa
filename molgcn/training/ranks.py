"""Gather the values of all processes of a run, and pick this one's again."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar

import torch
from lightning import Trainer
from torch import Tensor

Value = TypeVar("Value")


@cache
def host_group() -> Any:
    """Return the group by which processes exchange what lies in the host's memory, without a word to their GPUs.

    Every process has to call this at the same point first.
    """
    return torch.distributed.group.WORLD if torch.distributed.get_backend() == "gloo" else torch.distributed.new_group(backend="gloo")


def of_all_ranks(trainer: Trainer, value: Value) -> list[Value]:
    """Return the value of each process, in their order; every process has to call this."""
    if trainer.world_size == 1:
        return [value]
    values: list[Value] = [value] * trainer.world_size
    torch.distributed.all_gather_object(values, value, host_group())
    return values


def rows_of_all_ranks(trainer: Trainer, rows: Tensor) -> Tensor:
    """Return the rows [n, ...] of all processes, in their order; every process has to call this, and n may differ among them."""
    if trainer.world_size == 1:
        return rows
    sizes = [torch.zeros(1, dtype=torch.int64, device=rows.device) for _ in range(trainer.world_size)]
    torch.distributed.all_gather(sizes, sizes[0].new_tensor([len(rows)]))
    counts = torch.cat(sizes).tolist()
    padded = rows.new_zeros(max(counts), *rows.shape[1:])
    padded[: len(rows)] = rows
    gathered = [torch.empty_like(padded) for _ in counts]
    torch.distributed.all_gather(gathered, padded)
    return torch.cat([part[:count] for part, count in zip(gathered, counts, strict=True)])


def of_this_rank(trainer: Trainer, values: list[Value]) -> Value | None:
    """Return the value of this process among those of :func:`of_all_ranks` in a run of fewer, as many or more; None where it has none."""
    return values[trainer.global_rank] if trainer.global_rank < len(values) else None
