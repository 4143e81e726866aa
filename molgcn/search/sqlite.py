"""Connect to a study's SQLite file, whatever other processes do with it."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

log = logging.getLogger(__name__)
T = TypeVar("T")

PATIENCE = 2.0  # seconds before a wait is announced


def connect(path: Path) -> sqlite3.Connection:
    """Return a connection to a file that waits for a process that is writing, however long it takes.

    Such a process may have been stopped. SQLite's own wait ends in an error, and Ctrl-C does not end it.
    """
    return sqlite3.connect(path, timeout=PATIENCE, check_same_thread=False, factory=_Connection)


class _Cursor(sqlite3.Cursor):
    def execute(self, *arguments: Any) -> _Cursor:
        return _patiently(partial(super().execute, *arguments))

    def executemany(self, *arguments: Any) -> _Cursor:
        return _patiently(partial(super().executemany, *arguments))


class _Connection(sqlite3.Connection):
    def cursor(self, *arguments: Any) -> Any:
        return super().cursor(*(arguments or (_Cursor,)))

    def commit(self) -> None:
        _patiently(super().commit)


def _patiently(step: Callable[[], T]) -> T:
    """Take a step, again and again while another process has the file locked."""
    announced = False
    while True:
        try:
            return step()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
                raise
        if not announced:
            log.info("Waiting for another process that writes into the study")
            announced = True
