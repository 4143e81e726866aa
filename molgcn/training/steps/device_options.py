"""The options of an optimiser that a CUDA graph reads from the device, so that schedules may change them between replays."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from molgcn.training.clipped_adam import ClippedAdam

_ON_DEVICE = ("lr", "momentum")


class DeviceOptions:
    """Keeps the learning rate of each group of parameters on the device, and the first of `betas` where the optimiser reads it there.

    Of optimisers that step by `betas` a :class:`molgcn.training.clipped_adam.ClippedAdam` does. A learning rate that is a tensor on a GPU
    already stays what it is. All other options are constants of a graph, and so are learning rates without `rates`.
    """

    def __init__(self, optimizer: Optimizer, device: torch.device, rates: bool = True) -> None:
        self.optimizer = optimizer
        self._rates = rates
        self._momenta = isinstance(optimizer, ClippedAdam) and optimizer.takes_tensors
        groups = optimizer.param_groups
        self._tensors: list[dict[str, Tensor]] = [
            {
                "lr": group["lr"] if on_gpu(group["lr"]) else torch.zeros((), device=device),
                "momentum": torch.zeros((), dtype=torch.float64, device=device),
            }
            for group in groups
        ]
        moving = {"params", "lr"} | ({"betas"} if self._momenta else set())
        self._constants = [itemgetter(*(key for key in group if key not in moving)) for group in groups]  # as fast as a comparison
        self._kept = [group["params"] for group in groups]  # alive, so that no new list gets their id
        self._written: list[dict[str, Any]] = [dict.fromkeys(_ON_DEVICE) for _ in groups]

    def constants(self) -> list[Any]:
        """Return what a graph takes as constant: other options, rates that are tensors already, and lists of parameters."""
        found: list[Any] = []
        for group, constants in zip(self.optimizer.param_groups, self._constants, strict=False):
            rate, parameters = group["lr"], group["params"]
            given = id(rate) if on_gpu(rate) else None if self._rates else float(rate)
            found += [given, group["betas"][1] if self._momenta else None, id(parameters), len(parameters), constants(group)]
        return found

    def write(self) -> None:
        """Write what has changed since the last call to the device."""
        for group, tensors, written in zip(self.optimizer.param_groups, self._tensors, self._written, strict=True):
            values = {"lr": group["lr"]} if self._rates and group["lr"] is not tensors["lr"] else {}
            if self._momenta:
                values["momentum"] = group["betas"][0]
            for name, value in values.items():
                if value != written[name]:
                    tensors[name].fill_(value)
                    written[name] = float(value)

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Give the optimiser these tensors inside a `with` block, in which its step is captured."""
        before = [dict(group) for group in self.optimizer.param_groups]
        for group, tensors in zip(self.optimizer.param_groups, self._tensors, strict=True):
            if self._rates:
                group["lr"] = tensors["lr"]
            if self._momenta:
                group["betas"] = (tensors["momentum"], group["betas"][1])
            if "capturable" in group:
                group["capturable"] = True
        try:
            yield
        finally:
            for group, old in zip(self.optimizer.param_groups, before, strict=True):
                group.update({key: old[key] for key in ("lr", "betas", "capturable") if key in old})


def on_gpu(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_cuda
