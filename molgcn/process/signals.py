"""How a command ends on SIGINT (Ctrl-C) and SIGTERM, and where these signals have to wait."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn


class Terminated(SystemExit):
    """The exception that SIGTERM raises, so that processes which this one started are ended too.

    The exit code is 128 + SIGTERM, as in a shell.
    """

    def __init__(self, code: int = 128 + signal.SIGTERM) -> None:
        super().__init__(code)


def terminate(*_: object) -> None:
    """Handle SIGTERM by raising :class:`Terminated`.

    Within a fit nothing is raised. Lightning's Trainer has wrapped this handler in one of its own, and ends after the batch. An exception
    in the middle of a batch could get lost, for example in a generator that is being closed.
    """
    within_fit = signal.getsignal(signal.SIGTERM) is not terminate
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a second SIGTERM ends the process at once
    if not within_fit:
        raise Terminated


def end_on_interrupt() -> None:
    """Let Ctrl-C end the process at once, until :func:`raise_on_interrupt` is called.

    This is for the time in which modules are imported, when nothing can be lost. A library could take a KeyboardInterrupt for a failure of
    its own import, or swallow it. Where SIGINT is ignored, it stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_on_interrupt() -> None:
    """Let Ctrl-C raise a KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> NoReturn:
    os.write(sys.stderr.fileno(), b"\nInterrupted.\n")
    os._exit(128 + signal.SIGINT)


def exit_interrupted() -> NoReturn:
    """End the process with exit code 130, as shells do after an interrupt.

    Where Ctrl-C came while Python executed a string, as it does to make a dataclass, `python -m` would end by the signal instead. CPython
    remembers the interrupt until another string is executed.
    """
    exec("")
    sys.exit(130)


class SignalsLater:
    """A context manager within which SIGINT and SIGTERM wait until its end.

    It has an effect in the main thread only, since no other thread handles signals. A second signal does not wait, so that a block which
    takes too long can still be ended.
    """

    def __enter__(self) -> SignalsLater:
        self._handlers: dict[int, Any] = {}
        self._came: int | None = None
        self._hold()
        return self

    def __exit__(self, *_: object) -> None:
        self._release()

    @contextmanager
    def now(self) -> Iterator[None]:
        """Let signals act at once within this block. One that has waited acts when the block begins."""
        self._release()
        try:
            yield
        finally:
            self._hold()

    def _hold(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            return
        for number in (signal.SIGINT, signal.SIGTERM):
            if callable(handler := signal.getsignal(number)):
                self._handlers[number] = handler
                signal.signal(number, self._note)

    def _release(self) -> None:
        while self._handlers:
            signal.signal(*self._handlers.popitem())
        if self._came is not None:
            came, self._came = self._came, None
            signal.raise_signal(came)

    def _note(self, number: int, _: object) -> None:
        first, self._came = self._came is None, number
        if not first:
            self._release()
