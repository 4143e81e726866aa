"""Run a block without warnings and log messages."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet(*loggers: str) -> Iterator[None]:
    """Warn of nothing, and log nothing below an error by the loggers of these names."""
    quieted = [logging.getLogger(name) for name in loggers]
    levels = [logger.level for logger in quieted]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in quieted:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(quieted, levels, strict=True):
                logger.setLevel(level)
