"""What is compiled when, on machines without a GPU: loading is a stand-in, compilation waits on a signal."""

import threading
from types import SimpleNamespace

import pytest
import torch
from emulated import run_emulated
from stack_cases import random_batch, random_inputs

from molgcn.errors import UserError
from molgcn.ops import gcn_layers_pass, gcn_stack_cuda, launch
from molgcn.ops.nvrtc import cubin

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


@pytest.mark.parametrize("module", [gcn_stack_cuda, gcn_layers_pass], ids=["stack", "vertex"])
@pytest.mark.parametrize("needs_grad_x", [True, False])
def test_a_forward_knows_its_backward(emulate, monkeypatch, module, needs_grad_x):
    """All that forward and backward ask for is compiled beside the first kernel, and nothing else."""
    expected, used, emulated = [], [], module.kernel

    def kernel(source, name, defines, device, soon=None):
        used.append((source, defines))
        expected.extend(soon() if soon is not None else ())
        return emulated(source, name, defines, device)

    monkeypatch.setattr(module, "kernel", kernel)
    strategy = "stack" if module is gcn_stack_cuda else "vertex"
    inputs = random_inputs(random_batch([5, 9], 11), 16, 2, norm="layer", strategy=strategy)
    inputs.x.requires_grad_(needs_grad_x)
    run_emulated(inputs)
    assert expected
    assert all(wanted in used for wanted in expected)
    assert all(wanted in expected for wanted in used[1:] if wanted != used[0])
    assert any(source.endswith("backward.cu") for source, _ in expected)
