"""Measures how long training waits for its batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from molgcn.data.loader import MoleculeLoader


class TimedLoader:
    """A loader that measures how long its consumer has waited for batches.

    Args:
        loader: the loader to time. Its epoch and state are set and read through this one.

    Attributes:
        waited: seconds waited for batches so far.
    """

    batch_sampler = None  # Lightning looks at both to set the epoch

    def __init__(self, loader: MoleculeLoader) -> None:
        self.loader = loader
        self.sampler = loader.sampler
        self.batch_size = loader.batch_size
        self.waited = 0.0

    def __iter__(self) -> Iterator[Any]:
        start = time.perf_counter()
        for batch in self.loader:
            self.waited += time.perf_counter() - start
            yield batch
            start = time.perf_counter()

    def __len__(self) -> int:
        return len(self.loader)

    def state_dict(self) -> dict[str, Any]:
        return self.loader.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where :meth:`state_dict` was taken."""
        self.loader.load_state_dict(state)
