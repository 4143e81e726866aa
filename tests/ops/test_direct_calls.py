"""Operators called as `torch.ops.molgcn.*`, and their backward passes under hooks, refuse tensors that do not fit, or return right values.

The calls are made by `direct_calls.py` in a process of its own, whose end by a wrong access to memory fails a test.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from compiler import COMPILER, needs_compiler, needs_extension
from emulated_kernels import KEPT, kept

ROOT = Path(__file__).parents[2]


def make_calls(*options: str, **environment: str) -> None:
    """Run the program, and check that it ended well and that every call was refused or right."""
    command = [sys.executable, str(Path(__file__).with_name("direct_calls.py")), *options]
    environment = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "XDG_CACHE_HOME": str(KEPT.parents[1]), "OMP_NUM_THREADS": "1", **environment}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout[-400:] + done.stderr[-4000:]
    assert [line for line in done.stdout.splitlines() if line.startswith("WRONG")] == []
    assert "AddressSanitizer" not in done.stderr


@needs_extension
@pytest.mark.slow
def test_each_tensor_in_each_wrong_form():
    make_calls()


@needs_compiler
@pytest.mark.slow
def test_each_tensor_in_each_wrong_form_on_cuda_under_emulation():
    make_calls("--emulated")


@needs_compiler
@pytest.mark.slow
def test_no_call_touches_memory_of_others(tmp_path):
    """AddressSanitizer finds no wrong access, also with arbitrary numbers in the index lists."""
    sources = sorted(path for pattern in ("CMakeLists.txt", "molgcn/extension.py", "cpu/*") for path in ROOT.glob(pattern))
    made_of = [sys.version, *(path.read_text() for path in sources), output([sys.executable, "-m", "nanobind", "--version"])]
    extension = kept("watched.so", [*made_of, *processor()], partial(build_watched, tmp_path))
    library = " ".join(output([str(COMPILER), f"-print-file-name={name}"]) for name in ("libasan.so", "libstdc++.so"))
    make_calls("--extension", str(extension), "--random", "300", LD_PRELOAD=library, ASAN_OPTIONS="detect_leaks=0")


def processor() -> list[str]:
    """Return the instruction sets for which `MOLGCN_INSTRUCTION_SETS=native` builds."""
    from molgcn import _cpu

    return _cpu.instruction_sets()


def build_watched(folder: Path, path: Path) -> None:
    """Build the extension in a folder, watched by AddressSanitizer, for this processor alone, whose instructions all calls use."""
    flags = "-fsanitize=address -fno-omit-frame-pointer -O1 -g1"
    options = ["-DCMAKE_BUILD_TYPE=Debug", f"-DCMAKE_CXX_FLAGS_DEBUG={flags}", f"-DPython_EXECUTABLE={sys.executable}"]
    nanobind = output([sys.executable, "-m", "nanobind", "--cmake_dir"])
    output(["cmake", "-S", str(ROOT), "-B", str(folder), f"-Dnanobind_DIR={nanobind}", *options], MOLGCN_INSTRUCTION_SETS="native")
    output(["cmake", "--build", str(folder), "--target", "_cpu", "-j2"])
    (extension,) = folder.glob("_cpu*.so")
    shutil.copy(extension, path)


def output(command: list[str], **environment: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, **environment}).stdout.strip()
