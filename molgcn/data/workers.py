"""Runs a function over chunks of a long list in worker processes, with a progress bar and results in order."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, TypeVar

from molgcn.errors import UserError

T = TypeVar("T")

POOL_THRESHOLD = 10_000  # starting processes costs about as much as featurising this many molecules
CHUNK = 1_024


def available_cores() -> int:
    """Cores this process may use (a container or `taskset` may allow fewer than the machine has)."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def choose_workers(num_items: int, num_workers: int | None) -> int:
    """Number of worker processes: `num_workers`, or by default one a core for long lists and none for short ones.

    Raises:
        UserError: when `num_workers` is negative.
    """
    if num_workers is not None and num_workers < 0:
        raise UserError(
            f"num_workers={num_workers} is negative. Give 0 to work in this process, a number of worker processes, or "
            "null to choose by the number of molecules and cores."
        )
    if multiprocessing.current_process().daemon:  # such a process may not have children
        return 0
    if num_workers is None:
        num_workers = available_cores() if num_items >= POOL_THRESHOLD else 0
    workers = min(num_workers, -(-num_items // CHUNK))
    return workers if workers > 1 or num_workers == 1 else 0


def map_chunks(
    function: Callable[[Sequence[Any]], T],
    items: Sequence[Any],
    *,
    num_workers: int | None = None,
    description: str = "",
    progress: bool | None = None,
) -> Iterator[T]:
    """Yields `function(chunk)` for consecutive chunks of `items`, in order.

    The workers are fresh interpreters (`spawn`), safe beside CUDA and threads, so `function` must be importable: a
    module-level function or a `functools.partial` of one.

    Args:
        function: called with a chunk (a slice of `items`).
        items: the list to work through.
        num_workers: worker processes; 0 works in this process; None decides by length and cores.
        description: text before the progress bar.
        progress: True shows the bar, False hides it, None shows it on a terminal.

    Raises:
        UserError: when the worker processes cannot start or die.
    """
    from tqdm import tqdm

    workers = choose_workers(len(items), num_workers)
    chunks = [items[start : start + CHUNK] for start in range(0, len(items), CHUNK)]
    hide = {True: False, False: True, None: None}[progress if len(items) >= CHUNK else False]
    with tqdm(total=len(items), desc=description, unit=" molecules", disable=hide, mininterval=0.5) as bar:
        if workers == 0:
            for chunk in chunks:
                yield function(chunk)
                bar.update(len(chunk))
            return
        pool = ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
        try:
            for chunk, result in zip(chunks, pool.map(function, chunks), strict=True):
                yield result
                bar.update(len(chunk))
        except BrokenProcessPool as error:
            raise UserError(
                f"The {workers} worker processes ended early. In a script of your own, put the calling code under "
                '`if __name__ == "__main__":`; if memory ran out, use fewer with dataset.num_workers=1; '
                "dataset.num_workers=0 works without worker processes."
            ) from error
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
