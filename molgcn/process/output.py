"""Let a command go on where nobody can read what it prints: a pipe was closed, a terminal is gone, a disk is full."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any


@contextmanager
def output_may_be_lost() -> Iterator[None]:
    """Within this block, drop what standard output and error cannot take, and replace characters that they cannot show."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (None if stream is None else _Lossy(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class _Lossy:
    """A text stream whose writes do not fail."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return int(self._stream.write(text))
        except UnicodeEncodeError:
            shown = text.encode(self._stream.encoding, "replace").decode(self._stream.encoding)
            return self.write(shown)
        except OSError:
            self._drop()
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._drop()

    def _drop(self) -> None:
        """Send what the stream has not written yet, and all that follows, to nowhere."""
        with suppress(OSError):  # a stream without a file
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
