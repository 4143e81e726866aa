"""Ends from outside: what SIGINT (Ctrl-C) and SIGTERM make of a command, and where they have to wait."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn


class Terminated(SystemExit):
    """A SIGTERM, which unlike the signal alone leaves no process behind that this one started; the exit code is a shell's."""

    def __init__(self, code: int = 128 + signal.SIGTERM) -> None:
        super().__init__(code)


def terminate(*_: object) -> None:
    """The handler of SIGTERM, which ends the program where it stands.

    Within a fit, whose Trainer has put a handler of its own around this one, it is the Trainer that ends, after the batch: an exception
    anywhere may come where nobody passes it on, as in a generator that is closed.
    """
    within_fit = signal.getsignal(signal.SIGTERM) is not terminate
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # for a second one
    if not within_fit:
        raise Terminated


def end_on_interrupt() -> None:
    """Lets Ctrl-C end the process at once, until :func:`raise_on_interrupt`: while modules are imported there is nothing to lose.

    An exception might come where a library takes it for its own failure, or nobody passes it on. Where SIGINT is ignored, it stays so.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


def raise_on_interrupt() -> None:
    """Makes Ctrl-C a KeyboardInterrupt again."""
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> NoReturn:
    os.write(sys.stderr.fileno(), b"\nInterrupted.\n")
    os._exit(128 + signal.SIGINT)


def exit_interrupted() -> NoReturn:
    """Ends the process as shells say that an interrupt does, with 130.

    Where it came while Python executed a string, as it does to make a dataclass, `python -m` would end by the signal instead: CPython
    remembers it until another string is executed.
    """
    exec("")
    sys.exit(130)


class SignalsLater:
    """SIGINT and SIGTERM that come within `with SignalsLater():` happen at its end, where this thread is the one that has them.

    A second signal does not wait, so that what takes too long can still be ended.
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
        """Within this block signals happen when they come, and at its beginning what came before."""
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
