"""The folders of files that are not Python: configs, kernel sources and built-in molecules."""

from __future__ import annotations

from pathlib import Path
from typing import Literal


def resource(name: Literal["conf", "cuda", "data"]) -> Path:
    """Return the folder of configs, CUDA sources or built-in molecules.

    In a wheel it is inside the package, in a checkout beside it.
    """
    package = Path(__file__).resolve().parent
    installed = package / "_resources" / name
    return installed if installed.is_dir() else package.parent / name
