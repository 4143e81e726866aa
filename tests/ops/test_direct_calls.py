"""Operators called as `torch.ops.molgcn.*` refuse arguments that do not fit each other, since kernels do not check addresses."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from compiler import COMPILER, needs_compiler, needs_extension
from direct_calls import REFUSALS, calls, with_misfits

ROOT = Path(__file__).parents[2]
FITS = (
    ("aggregate", "0.0: [4, 9] -> [5, 9] torch.float32"),  # a node without edges
    ("aggregate_backward", "3.0: [4, 9] -> [5, 9] torch.float32"),
    ("gcn_conv", "0.0: [4, 8] -> [5, 8] torch.float32"),  # a node without edges
    ("message_network with a head", "17: 2 -> 0 tensors"),  # no head
)


@needs_extension
def test_arguments_that_do_not_fit_are_refused():
    for name, (call, arguments) in calls().items():
        call(*arguments)
        for what, misfits in with_misfits(arguments):
            try:
                call(*misfits)
            except REFUSALS:
                continue
            assert (name, what) in FITS


@needs_compiler
@pytest.mark.slow
def test_no_call_touches_memory_of_others(tmp_path):
    """AddressSanitizer finds no wrong access, also with arbitrary numbers in the index lists."""
    flags = "-fsanitize=address -fno-omit-frame-pointer -O1"
    options = ["-DCMAKE_BUILD_TYPE=RelWithDebInfo", f"-DCMAKE_CXX_FLAGS={flags}", f"-DPython_EXECUTABLE={sys.executable}"]
    nanobind = output([sys.executable, "-m", "nanobind", "--cmake_dir"])
    output(["cmake", "-S", str(ROOT), "-B", str(tmp_path), f"-Dnanobind_DIR={nanobind}", *options])
    output(["cmake", "--build", str(tmp_path), "-j2"])
    (extension,) = tmp_path.glob("_cpu*.so")
    library = " ".join(output([str(COMPILER), f"-print-file-name={name}"]) for name in ("libasan.so", "libstdc++.so"))
    environment = {"LD_PRELOAD": library, "ASAN_OPTIONS": "detect_leaks=0", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    command = [sys.executable, str(Path(__file__).with_name("direct_calls.py")), str(extension), "3000"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=Path(__file__).parent)
    assert done.returncode == 0, done.stderr[-4000:]
    assert "AddressSanitizer" not in done.stderr


def output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
