"""Kernels of `cuda/` compiled as plain C++ under `emulator.h`, with the interface of :class:`molgcn.ops.launch.Kernel`."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from molgcn.resources import resource

HEADER_FOLDER = Path(__file__).parents[1] / "cuda"
_FOLDER = tempfile.TemporaryDirectory()
_loaded: dict[str, EmulatedKernel] = {}


def has_compiler() -> bool:
    return shutil.which("g++") is not None


class EmulatedKernel:
    def __init__(self, source: str, name: str, defines: dict[str, int]) -> None:
        program = (
            f'#include "{source}"\n'
            'extern "C" void run(const Parameters* p, int grid, int threads, int shared) '
            f"{{ emulator::launch(grid, threads, shared, [p] {{ {name}(*p); }}); }}\n"
        )
        key = hashlib.sha256(repr((program, sorted(defines.items()))).encode()).hexdigest()[:16]
        library = Path(_FOLDER.name) / f"{name}-{key}.so"
        if not library.exists():
            macros = [f"-D{macro}={value}" for macro, value in {"MOLGCN_EMULATOR": 1, **defines}.items()]
            includes = [f"-I{HEADER_FOLDER}", f"-I{resource('cuda')}"]
            flags = ["-std=c++17", "-O1", "-fPIC", "-shared", "-w", "-ffp-contract=off", "-U_FORTIFY_SOURCE"]
            command = ["g++", *flags, *macros, *includes, "-x", "c++", "-", "-o", str(library)]
            subprocess.run(command, input=program, text=True, check=True, env={**os.environ, "LC_ALL": "C"})
        self._run = ctypes.CDLL(str(library)).run

    def launch(self, grid: int, block: int, shared: int, parameters: ctypes.Structure, *, cooperative: bool = False) -> None:
        self._run(ctypes.byref(parameters), grid, block, shared)


def kernel(source: str, name: str, defines: dict[str, int], device: object) -> EmulatedKernel:
    """In place of :func:`molgcn.ops.launch.kernel`."""
    key = repr((source, name, sorted(defines.items())))
    if key not in _loaded:
        _loaded[key] = EmulatedKernel(source, name, defines)
    return _loaded[key]
