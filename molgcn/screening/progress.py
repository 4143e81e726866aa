"""A progress bar on standard error for a stream whose rows nobody has counted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from molgcn.data.text import Text
from molgcn.progress import progress_bar


class Progress:
    """Counts molecules; how far along is said by the bytes read of the file."""

    def __init__(self, text: Text | None) -> None:
        size = None if text is None else text.size
        layout = "{percentage:3.0f}% |{bar}| {desc} [{elapsed}<{remaining}]" if size else "{desc} [{elapsed}]"
        self._text = text
        self._bar = progress_bar(total=size, bar_format=layout, leave=False)
        self._start = time.perf_counter()
        self.count = 0

    def update(self, count: int) -> None:
        """Adds molecules that are done."""
        self.count += count
        self._bar.set_description_str(f"{self.count:,} molecules, {self.rate:,.0f}/s", refresh=False)
        self._bar.update(self._text.position() - self._bar.n if self._text and self._text.size else count)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return time.perf_counter() - self._start

    @property
    def rate(self) -> float:
        """Molecules a second."""
        return self.count / self.seconds

    def close(self) -> None:
        """Takes the bar away."""
        self._bar.close()


@contextmanager
def progress(text: Text | None) -> Iterator[Progress]:
    """A bar for as long as the block runs; see :func:`molgcn.progress.progress_bar`."""
    bar = Progress(text)
    try:
        yield bar
    finally:
        bar.close()
