"""Waiting for what another process does."""

import time
from collections.abc import Callable


def wait_until(happened: Callable[[], object], seconds: float = 120) -> None:
    """Return as soon as `happened()` is true.

    Raises:
        AssertionError: when it is still false after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < deadline, f"waited for {seconds} seconds in vain"
        time.sleep(0.02)
