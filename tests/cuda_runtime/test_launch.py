"""Kernels are compiled at the right time; compiling and loading are replaced, so that no GPU is needed."""

import threading
from types import SimpleNamespace

import pytest
import torch

from molgcn.cuda_runtime.launch import Launcher
from molgcn.errors import UserError

DEVICE = torch.device("cuda", 0)
HOPPER = SimpleNamespace(major=9, minor=0, name="H100")


def launcher(compile_code=lambda source, defines, arch: source.encode(), properties=HOPPER):
    """Return a launcher whose kernels are tuples of their code, name and device."""
    return Launcher(compile_code, lambda code, name, device: (code.result(), name, device), lambda device: properties)


def test_a_kernel_is_compiled_once_and_loaded_once_a_device():
    compiled = []
    kernel = launcher(lambda *asked: compiled.append(asked) or b"code").kernel
    first = kernel("a.cu", "a", {"B": 1, "A": 2}, DEVICE)
    assert first == (b"code", "a", 0)
    assert kernel("a.cu", "a", {"A": 2, "B": 1}, DEVICE) is first
    assert kernel("a.cu", "a", {"A": 2, "B": 1}, torch.device("cuda", 1)) == (b"code", "a", 1)
    assert compiled == [("a.cu", {"A": 2, "B": 1}, "sm_90")]


def test_what_did_not_compile_is_tried_again():
    results = iter([MemoryError(), b"code"])

    def compile_code(source, defines, arch):
        if isinstance(result := next(results), Exception):
            raise result
        return result

    kernel = launcher(compile_code).kernel
    with pytest.raises(MemoryError):
        kernel("a.cu", "a", {}, DEVICE)
    assert kernel("a.cu", "a", {}, DEVICE) == (b"code", "a", 0)


def test_a_gpu_before_ampere_is_refused_in_words():
    compiled = []
    kernel = launcher(lambda *asked: compiled.append(asked), SimpleNamespace(major=7, minor=5, name="Tesla T4")).kernel
    with pytest.raises(UserError, match=r"capability 8\.0 .* cuda:0 \(Tesla T4\) has 7\.5\. Use backend=pyg"):
        kernel("a.cu", "a", {}, DEVICE)
    assert not compiled


def test_what_is_wanted_soon_is_compiled_at_the_same_time():
    """The first kernel's compilation ends only once the second's has begun."""
    begun = threading.Event()

    def compile_code(source, defines, arch):
        if source == "next.cu":
            begun.set()
        assert begun.wait(30)
        return source.encode()

    kernel, asked = launcher(compile_code).kernel, []
    kernel("first.cu", "first", {}, DEVICE, lambda: [("next.cu", {"A": 1})])
    kernel("first.cu", "first", {}, DEVICE, lambda: asked.append(1) or [])
    assert not asked
    assert kernel("next.cu", "next", {"A": 1}, DEVICE) == (b"next.cu", "next", 0)
