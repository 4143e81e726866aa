"""Graphs for a CPU, which do the work of their first call again in place of a replay."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from molgcn.training.steps.graphs import Graphs


class RepeatedGraphs(Graphs):
    """Takes the place of :class:`molgcn.training.steps.graphs.Graphs` on a CPU."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._works: dict[Hashable, Callable[[], Any]] = {}

    @staticmethod
    def why_not(device: torch.device) -> str | None:
        return None

    def __contains__(self, key: Hashable) -> bool:
        return key in self._works

    def clear(self) -> None:
        self._works.clear()

    def run(self, key: Hashable, work: Callable[[], Any]) -> Any:
        return self._works.setdefault(key, work)()

    @contextmanager
    def beside(self) -> Iterator[None]:
        yield

    def num_kernels(self, key: Hashable) -> int:
        return 1
