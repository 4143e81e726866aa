"""Launches that run beside the kernel before them need not wait for it."""

import sys
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from emulated import Emulator, gpu_memory
from layer_network_cases import network_options, passes, random_call

from molgcn.cuda_runtime.launch import launching_by
from molgcn.ops.layer_network.gradient_steps import GradStep
from molgcn.ops.layer_network.steps_cuda import CudaSteps

NETWORKS = {
    "gated_gcn": {"conv": "gated_gcn", "edge_channels": 10, "norm": "batch", "residual": True, "dropout": 0.3},
    "feed-forward": {"conv": "gated_gcn", "edge_channels": 20, "norm": "batch", "residual": True, "feed_forward": True},
    "gat": {"conv": "gat", "edge_channels": 10, "heads": 2, "norm": "batch", "residual": True},
    "dmpnn": {"conv": "dmpnn", "edge_channels": 10},
}


class Swapping(Emulator):
    """An emulator that runs an early launch before the one that it may run beside.

    Attributes:
        num_early: The number of early launches so far.
    """

    def __init__(self) -> None:
        super().__init__()
        self.num_early, self._waiting = 0, None

    def kernel(self, source: str, name: str, defines: Mapping[str, int], *args: Any) -> Any:
        return _Swapped(self, super().kernel(source, name, defines))

    def wait(self) -> None:
        """Run the launch that still waits for a following one."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting()


class _Swapped:
    def __init__(self, by: Swapping, real: Any) -> None:
        self._by, self._real = by, real

    def launch(self, grid: int, block: int, shared: int, parameters: Any, **options: bool) -> None:
        own = type(parameters).from_buffer_copy(parameters)
        if getattr(own, "early", 0):
            self._by.num_early += 1
            self._real.launch(grid, block, shared, own, **options)
            return self._by.wait()
        self._by.wait()
        self._by._waiting = lambda: self._real.launch(grid, block, shared, own, **options)


def steps_of(by: Swapping) -> type[CudaSteps]:
    class Steps(CudaSteps):
        def pool(self, value: int, pooled: torch.Tensor) -> None:
            super().pool(value, pooled)
            by.wait()

        def backward(self, step: GradStep) -> None:
            super().backward(step)
            if step is self._run.backward.steps[-1]:
                by.wait()

    return Steps


@pytest.mark.parametrize("few", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["few atoms", "many"])
@pytest.mark.parametrize("network", NETWORKS)
def test_a_kernel_and_the_early_one_after_it_may_change_places(emulate, monkeypatch, network, few):
    """Neither reads what the other one writes, nor do they write to the same memory."""
    spec = network_options(in_channels=20, hidden_channels=20, num_layers=4, **NETWORKS[network])
    call, by = random_call(spec, dtype=torch.float32), Swapping()
    for module in [] if few else [each for name, each in sys.modules.items() if name.startswith("molgcn.ops.layer_network")]:
        if hasattr(module, "FEW_ATOMS"):
            monkeypatch.setattr(module, "FEW_ATOMS", 10)
    with gpu_memory():
        expected = passes(call, CudaSteps)
        with launching_by(by):
            found = passes(call, steps_of(by))
    assert by.num_early > 0 or (not few and network in ("gat", "dmpnn"))
    for one, other in ((found.outputs, expected.outputs), (found.gradients, expected.gradients)):
        assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
