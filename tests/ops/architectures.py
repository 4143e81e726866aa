"""The GPUs that every kernel compiles for."""

from collections.abc import Iterable
from typing import Any

import pytest

ARCHITECTURES = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
FAST = ("sm_80", "sm_90")  # which kernels treat differently


def architectures(*fast: str) -> list[Any]:
    """Return all architectures, of which fast tests have those named."""
    return [arch if arch in fast else pytest.param(arch, marks=pytest.mark.slow) for arch in ARCHITECTURES]


def by_turns(cases: Iterable[tuple[Any, ...]]) -> list[Any]:
    """Return each architecture with each case, of which fast tests have one of two architectures by turns."""
    return [
        pytest.param(arch, *case, marks=() if arch == FAST[number % len(FAST)] else pytest.mark.slow)
        for number, case in enumerate(cases)
        for arch in ARCHITECTURES
    ]


EVERY_ARCHITECTURE = architectures(*FAST)
