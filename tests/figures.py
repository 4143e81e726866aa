"""Save empty figures in tests that look at none."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", lambda figure, *args, **options: draw(Figure((1, 1)), *args, **options))
        yield draw
