"""Find the machine's C++ compiler.

Without one, molgcn installs without its extension and the tests of C++ code are skipped. With one they run: a failed or a missing build
nobody made, fails them.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from molgcn.cuda_runtime.structs import declared_headers
from molgcn.ops import HAS_CPU_EXTENSION

COMPILER = next(filter(None, map(shutil.which, (os.environ.get("CXX", ""), "c++", "g++", "clang++"))), None)

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler")
needs_extension = pytest.mark.skipif(COMPILER is None and not HAS_CPU_EXTENSION, reason="no C++ compiler, so no C++ extension")


def with_declared_headers(folder: Path) -> Path:
    """Return the folder, after writing the headers that Python declares into it."""
    for name, text in declared_headers().items():
        (folder / name).write_text(text)
    return folder
