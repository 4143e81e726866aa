"""Locks by which parallel processes, such as the jobs of a sweep, make shared files once and keep out of each other's folders."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

from filelock import FileLock, Timeout

log = logging.getLogger(__name__)

PATIENCE = 1.0


@contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold a lock on `path` in this process. Other processes that ask for it wait, and log this after :data:`PATIENCE` seconds.

    The lock is the empty file `.<name>.lock` beside `path`, which stays. The system frees it when a process dies. In a folder that cannot
    be written, or on a file system without locks, there is no lock and no process waits.
    """
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    if _acquire(lock, PATIENCE) is False:
        log.info("Waiting for another process to finish %s", path)
        _acquire(lock, -1)
    try:
        yield
    finally:
        lock.release()


@contextmanager
def claimed(folder: Path, wanted: bool = True) -> Iterator[bool]:
    """Try to lock a folder by the file `.lock` in it, and yield whether this process has the folder for itself.

    In a folder that cannot be locked, see :func:`exclusive`, it yields True. The folder is made if it does not exist. With `wanted=False`
    it is not locked, for a process whose parent holds the lock, and True is yielded.
    """
    with tried(folder / ".lock") if wanted else nullcontext(True) as free:
        yield free is not False


@contextmanager
def tried(file: Path) -> Iterator[bool | None]:
    """Try to lock a file, which is made where there is none, and yield whether this process now holds the lock.

    None stands for a file that cannot be locked, see :func:`exclusive`.
    """
    lock = FileLock(file)
    try:
        yield _acquire(lock, timeout=0)
    finally:
        lock.release()


def _acquire(lock: FileLock, timeout: float) -> bool | None:
    """Return whether this process got the lock within `timeout` seconds, for which -1 is no limit. None is a file that cannot be locked."""
    file = Path(lock.lock_file)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()  # raises an error where acquiring the lock would wait for ever
        lock.acquire(timeout=timeout)
    except Timeout:
        return False
    except OSError as error:
        log.debug("%s is not locked: %s", file, error)
        return None
    return True
