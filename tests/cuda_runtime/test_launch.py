"""What is compiled when, on machines without a GPU: loading is a stand-in, compilation waits on a signal."""

import threading
from types import SimpleNamespace

import pytest
import torch

from molgcn.cuda_runtime import launch
from molgcn.cuda_runtime.nvrtc import cubin
from molgcn.errors import UserError

DEVICE = torch.device("cuda", 0)


@pytest.fixture
def compiled(monkeypatch):
    """Which sources were compiled, in that order; nothing is loaded."""
    found = []
    monkeypatch.setattr(launch, "cubin", lambda source, defines, arch: found.append((source, defines, arch)) or source.encode())
    monkeypatch.setattr(launch, "Kernel", lambda code, name, device: (code.result(), name, device))
    monkeypatch.setattr(launch, "_kernels", {})
    monkeypatch.setattr(launch, "_codes", {})
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(major=9, minor=0))
    return found


def test_a_kernel_is_compiled_once_and_loaded_once_a_device(compiled):
    first = launch.kernel("a.cu", "a", {"B": 1, "A": 2}, DEVICE)
    assert first == (b"a.cu", "a", 0)
    assert launch.kernel("a.cu", "a", {"A": 2, "B": 1}, DEVICE) is first
    assert launch.kernel("a.cu", "a", {"A": 2, "B": 1}, torch.device("cuda", 1)) == (b"a.cu", "a", 1)
    assert compiled == [("a.cu", {"A": 2, "B": 1}, "sm_90")]


def test_what_did_not_compile_is_tried_again(compiled, monkeypatch):
    working = launch.cubin

    def full(source, defines, arch):
        raise MemoryError

    monkeypatch.setattr(launch, "cubin", full)
    with pytest.raises(MemoryError):
        launch.kernel("a.cu", "a", {}, DEVICE)
    monkeypatch.setattr(launch, "cubin", working)
    assert launch.kernel("a.cu", "a", {}, DEVICE) == (b"a.cu", "a", 0)


def test_a_gpu_before_ampere_is_refused_in_words(compiled, monkeypatch):
    old = SimpleNamespace(major=7, minor=5, name="Tesla T4")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: old)
    with pytest.raises(UserError, match=r"capability 8\.0 .* cuda:0 \(Tesla T4\) has 7\.5\. Use backend=pyg"):
        launch.kernel("a.cu", "a", {}, DEVICE)
    assert not compiled


def test_what_is_wanted_soon_is_compiled_at_the_same_time(compiled, monkeypatch):
    """The first kernel's compilation ends only once the second's has begun."""
    begun = threading.Event()

    def compile_together(source, defines, arch):
        if source == "next.cu":
            begun.set()
        assert begun.wait(30)
        return cubin.__name__.encode()

    monkeypatch.setattr(launch, "cubin", compile_together)
    launch.kernel("first.cu", "first", {}, DEVICE, lambda: [("next.cu", {"A": 1})])
    asked = []
    launch.kernel("first.cu", "first", {}, DEVICE, lambda: asked.append(1) or [])
    assert not asked
    launch.kernel("next.cu", "next", {"A": 1}, DEVICE)
