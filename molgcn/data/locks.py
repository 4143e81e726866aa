"""Side by side, as the jobs of a sweep are, processes make what they share once and keep out of each other's folders."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

log = logging.getLogger(__name__)

PATIENCE = 1.0


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Holds `path` for this process; others that ask for it wait, and say so after :data:`PATIENCE` seconds.

    The lock is the empty file `.<name>.lock` beside `path`, which stays; the system frees it when a process dies. Where there can be
    none, in a folder that cannot be written or on a file system without locks, nobody waits.
    """
    file = path.with_name(f".{path.name}.lock")
    lock = FileLock(file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()  # says what is wrong where a lock would wait for ever
        try:
            lock.acquire(timeout=PATIENCE)
        except Timeout:
            log.info("Waiting for another process to finish %s", path)
            lock.acquire()
    except OSError as error:
        log.debug("%s is not locked: %s", path, error)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def claimed(folder: Path, wanted: bool = True) -> Iterator[bool]:
    """Whether this process has `folder` for itself, by the lock `.lock` in it; where there can be none, as with :func:`exclusive`, it has.

    Args:
        folder: made if need be.
        wanted: False leaves it to the process that this one belongs to.
    """
    lock, free = FileLock(folder / ".lock"), True
    try:
        if wanted:
            folder.mkdir(parents=True, exist_ok=True)
            Path(lock.lock_file).touch()
            lock.acquire(timeout=0)
    except Timeout:
        free = False
    except OSError as error:
        log.debug("%s is not locked: %s", folder, error)
    try:
        yield free
    finally:
        lock.release()
