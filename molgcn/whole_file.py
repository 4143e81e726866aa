"""Files and folders that are whole or not there at all, and what killed processes left of others."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

_TEMPORARY = re.compile(r"\.(.+)-[0-9a-f]{32}|\.(.+\.ckpt)\.\d+")  # the second are checkpoints of earlier versions
_STALE = 24 * 3600.0


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yields a hidden name beside `path` to write to; at the end it takes the place of `path`, or goes where writing failed."""
    temporary = path.with_name(f".{path.name}-{uuid4().hex}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Removes temporary files and folders that processes left in `folder` when they were killed.

    Args:
        folder: nothing happens where there is none, or it cannot be read.
        name: of the file or folder that the caller holds the lock of, so that nobody else is writing it. None says that the lock is of
            all in `folder`. What belongs to another name is removed once it is a day old.
    """
    with suppress(OSError):  # they cost space and no more
        for path in list(folder.iterdir()):
            found = _TEMPORARY.fullmatch(path.name)
            if found and (name is None or name in found.groups() or time.time() - path.stat().st_mtime > _STALE):
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
