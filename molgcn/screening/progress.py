"""A progress bar on standard error for a file whose number of rows is not known."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from molgcn.data.text import Text
from molgcn.process.progress import progress_bar


class Progress:
    """A count of molecules with a progress bar that follows the bytes read from the file.

    Args:
        text: the file that is read, or None.
    """

    def __init__(self, text: Text | None) -> None:
        size = None if text is None else text.size
        layout = "{percentage:3.0f}% |{bar}| {desc} [{elapsed}<{remaining}]" if size else "{desc} [{elapsed}]"
        self._text = text
        self._bar = progress_bar(total=size, bar_format=layout, leave=False)
        self._start = time.perf_counter()
        self.count = 0

    def update(self, count: int) -> None:
        """Add molecules that are done."""
        self.count += count
        self._bar.set_description_str(f"{self.count:,} molecules, {self.rate:,.0f}/s", refresh=False)
        self._bar.update(self._text.position() - self._bar.n if self._text and self._text.size else count)

    @property
    def seconds(self) -> float:
        """The seconds since the start."""
        return time.perf_counter() - self._start

    @property
    def rate(self) -> float:
        """The molecules per second."""
        return self.count / self.seconds

    def close(self) -> None:
        """Remove the bar."""
        self._bar.close()


@contextmanager
def progress(text: Text | None) -> Iterator[Progress]:
    """Show a progress bar within the block; see :func:`molgcn.process.progress.progress_bar`."""
    bar = Progress(text)
    try:
        yield bar
    finally:
        bar.close()
