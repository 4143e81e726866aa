"""Runs a function over chunks of a long list or stream in worker processes, and yields the results in order."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

from molgcn.errors import UserError
from molgcn.process.progress import progress_bar
from molgcn.process.signals import SignalsLater

C = TypeVar("C")
K = TypeVar("K")
T = TypeVar("T")

POOL_THRESHOLD = 10_000  # starting processes costs about as much as featurising this many molecules
CHUNK = 1_024
_STOP = signal.SIGUSR1


def available_cores() -> int:
    """Return the number of cores that this process may use, since a container or `taskset` may allow fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def choose_workers(num_items: int, num_workers: int | None) -> int:
    """Return the number of worker processes for a list, at most one for each chunk.

    None takes one for each core for long lists, and none for short ones.
    """
    if num_workers is not None and num_workers < 0:
        raise UserError(
            f"num_workers={num_workers} is negative. Give 0 to work in this process, a number of worker processes, or "
            "null to choose by the number of molecules and cores."
        )
    if multiprocessing.current_process().daemon:  # a daemonic process may not have children
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
    """Yield `function(chunk)` for consecutive chunks of `items`, in order.

    The function must be importable, see :func:`map_stream`. Without `num_workers` the length of the list and the cores decide.
    """
    workers = choose_workers(len(items), num_workers)
    chunks = (items[start : start + CHUNK] for start in range(0, len(items), CHUNK))
    show = progress if len(items) >= CHUNK else False
    with progress_bar(show, total=len(items), desc=description, unit=" molecules") as bar:
        for result, size in map_stream(function, ((chunk, len(chunk)) for chunk in chunks), workers):
            yield result
            bar.update(size)


def map_stream(function: Callable[[C], T], chunks: Iterable[tuple[C, K]], num_workers: int) -> Iterator[tuple[T, K]]:
    """Yield `(function(chunk), companion)` for every `(chunk, companion)` of a stream of any length, in order.

    At most `2 * num_workers + 1` chunks are in memory at once. Companions stay in this process. Workers leave the chunks that they have
    begun where the stream is closed or fails. They are fresh interpreters
    (`spawn`), which are safe beside CUDA and threads. The function must be importable: a module-level function or a `functools.partial` of
    one.
    """
    if num_workers == 0:
        yield from ((function(chunk), companion) for chunk, companion in chunks)
        return
    pool = ProcessPoolExecutor(num_workers, mp_context=multiprocessing.get_context("spawn"), initializer=_start_worker)
    waiting: deque[tuple[Future[T], K]] = deque()
    try:
        for chunk, companion in chunks:
            with SignalsLater():  # an interrupted start would leave a worker without its instructions, which prints a traceback
                future = pool.submit(_work, function, chunk)
            waiting.append((future, companion))
            if len(waiting) > 2 * num_workers:
                future, first = waiting.popleft()
                yield future.result(), first
        while waiting:
            future, first = waiting.popleft()
            yield future.result(), first
    except BrokenProcessPool as error:
        raise UserError(
            f"The {num_workers} worker processes ended early. In a script of your own, put the calling code under "
            '`if __name__ == "__main__":`; if memory ran out, use fewer with num_workers=1 (dataset.num_workers=1 in training); 0 works '
            "without worker processes."
        ) from error
    finally:
        for number in list(pool._processes or ()):
            with suppress(ProcessLookupError):
                os.kill(number, _STOP)
        pool.shutdown(wait=True, cancel_futures=True)


def _start_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process handles it
    signal.signal(_STOP, _Worker.stop)
    end_with_parent()


class _Worker:
    """What a worker process is doing."""

    at_work = False
    stopped = False

    @classmethod
    def stop(cls, *_: object) -> None:
        """Let the process take no further chunk, and leave the one that it has begun.

        The process itself goes on, since one that is killed while it returns a result would leave the parent waiting for the rest of it.
        """
        cls.stopped = True
        if cls.at_work:
            raise KeyboardInterrupt


def _work(function: Callable[[C], T], chunk: C) -> T:
    _Worker.at_work = True
    try:
        if _Worker.stopped:
            raise KeyboardInterrupt
        return function(chunk)
    finally:
        _Worker.at_work = False


@cache
def end_with_parent() -> None:
    """Let this process end within a second of its parent process, even if the parent is killed."""
    parent = multiprocessing.parent_process()
    expected = os.getppid() if parent is None else parent.pid

    def watch() -> None:
        while os.getppid() == expected:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
