"""Progress of long work: a bar on a terminal, or a line every few seconds in a file or a pipe."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from tqdm import tqdm

SECONDS = 5.0  # between two lines


class _WholeLines:
    """A file for tqdm in which every state of the bar becomes a line of its own."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        """Write a state of the bar as a line."""
        if line := text.strip():
            self._file.write(f"{line}\n")

    def flush(self) -> None:
        self._file.flush()


def progress_bar(show: bool | None = None, seconds: float = SECONDS, **options: Any) -> tqdm:
    """Return a tqdm bar on standard error.

    Args:
        show: True always shows a bar, and False shows nothing. None shows a bar on a terminal, and lines elsewhere.
        seconds: the time between two lines. Work that ends before shows none.
        options: further options of tqdm.
    """
    from tqdm import tqdm

    if show is None and sys.stderr is not None and not sys.stderr.isatty():
        return tqdm(**options | {"file": _WholeLines(sys.stderr), "mininterval": seconds, "delay": seconds, "ascii": True})
    return tqdm(**{"mininterval": 0.5} | options, disable=show is False or sys.stderr is None)
