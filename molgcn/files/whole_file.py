"""Files that are written completely or not at all, and the removal of what killed processes left."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

_TEMPORARY = re.compile(r"\.(.+)-[0-9a-f]{32}|\.(.+\.ckpt)\.\d+")  # the second form is that of checkpoints of earlier versions
_STALE = 24 * 3600.0  # seconds


@contextmanager
def whole(path: Path) -> Iterator[Path]:
    """Yield a hidden path beside `path` to write to.

    At the end the written file replaces `path`. Where the block raises, it is removed and `path` stays as it was.
    """
    temporary = path.with_name(f".{path.name}-{uuid4().hex}")
    try:
        yield temporary
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Write a whole text file in UTF-8; see :func:`whole`."""
    with whole(path) as temporary:
        temporary.write_text(text, "utf-8")


def remove_leftovers(folder: Path, name: str | None = None) -> None:
    """Remove temporary files and folders that killed processes left in `folder`.

    Args:
        folder: the folder. Nothing happens where it does not exist or cannot be read.
        name: the file or folder whose lock the caller holds, so that nobody else is writing it. Leftovers of other names are removed only
            once they are a day old. None means that the lock is for everything in `folder`.
    """
    with suppress(OSError):  # leftovers only cost space
        for path in list(folder.iterdir()):
            found = _TEMPORARY.fullmatch(path.name)
            if found and (name is None or name in found.groups() or time.time() - path.stat().st_mtime > _STALE):
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
