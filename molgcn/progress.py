"""How far long work has come: a bar on a terminal, a line every few seconds in a file or a pipe."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from tqdm import tqdm

SECONDS = 5.0  # between two lines


class _WholeLines:
    """A file for tqdm, whose every state becomes a line of its own."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        """Writes what tqdm would show in place of its last state."""
        if line := text.strip():
            self._file.write(f"{line}\n")

    def flush(self) -> None:
        """Hands the lines to the system."""
        self._file.flush()


def progress_bar(show: bool | None = None, seconds: float = SECONDS, **options: Any) -> tqdm:
    """A tqdm bar on standard error.

    Args:
        show: True is a bar in any case, False nothing; None is a bar on a terminal, elsewhere a line now and then.
        seconds: between two lines; shorter work has none.
        options: of tqdm.
    """
    from tqdm import tqdm

    if show is None and sys.stderr is not None and not sys.stderr.isatty():
        return tqdm(**options | {"file": _WholeLines(sys.stderr), "mininterval": seconds, "delay": seconds, "ascii": True})
    return tqdm(**{"mininterval": 0.5} | options, disable=show is False or sys.stderr is None)
