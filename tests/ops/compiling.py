"""Compile kernels of `cuda/` for GPUs, and keep in the user's cache which ones compiled, so that later runs need not."""

from __future__ import annotations

import functools
import hashlib
import inspect
import tempfile
from collections.abc import Mapping
from pathlib import Path

from compiler import with_declared_headers
from emulated_kernels import included, kept_folder

from molgcn.cuda_runtime import nvrtc
from molgcn.resources import resource


def compiles(source: str, defines: Mapping[str, int], arch: str) -> bool:
    """Return whether a kernel's file compiles, or did in an earlier run with the same texts, macros, compiler and options."""
    macros = [f"{macro}={value}" for macro, value in sorted(defines.items())]
    inputs = [nvrtc.nvrtc_version(), inspect.getsource(nvrtc), arch, source, *macros, *_texts(source)]
    key = hashlib.sha256("\0".join(inputs).encode()).hexdigest()[:32]
    path = kept_folder() / f"{key}.compiles"
    if not path.exists() and not nvrtc.compile_source(source, defines, arch).startswith(b"\x7fELF"):
        return False
    path.touch()
    return True


@functools.cache
def _texts(source: str) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        return included(f'#include "{source}"', [resource("cuda"), with_declared_headers(Path(folder))])
