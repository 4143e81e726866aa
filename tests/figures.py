"""Save empty figures in tests that look at none."""

import io
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture(scope="module")
def empty_figures(trained_run) -> Iterator[Callable[..., None]]:
    """Save empty figures in tests that train, and yield what draws them. The run that all tests share is drawn before."""
    with _empty_figures() as draw:
        yield draw


@pytest.fixture
def blank_figures() -> Iterator[Callable[..., None]]:
    """Save empty figures in one test, and yield what draws them."""
    with _empty_figures() as draw:
        yield draw


@contextmanager
def _empty_figures() -> Iterator[Callable[..., None]]:
    """Save empty figures where figures are not tested, since drawing takes most of a small run or page."""
    from matplotlib.figure import Figure

    draw = Figure.savefig

    @cache
    def drawn(form: str) -> bytes:
        file = io.BytesIO()
        draw(Figure((1, 1)), file, format=form)
        return file.getvalue()

    def save(figure: Figure, file: Path | io.BytesIO, format: str | None = None, **options: Any) -> None:
        content = drawn(format or Path(file).suffix[1:])
        file.write(content) if isinstance(file, io.BytesIO) else Path(file).write_bytes(content)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", save)
        yield draw
