"""Run kernels of `cuda/` on the CPU, and compile them for GPUs."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from compiler import COMPILER
from compiling import compiles
from emulated_kernels import EmulatedKernel
from gcn_reference import gcn_reference
from stack_cases import H100, Result, changed, converted, layers_of, leaves, run, worst, worst_molecule
from torch import Tensor
from within_backward import within_backward

from molgcn.cuda_runtime.launch import Gpu, Launcher, Prefetch, launching_by
from molgcn.ops import HAS_CPU_EXTENSION
from molgcn.ops.gcn_network import GcnCall
from molgcn.ops.layer_network import implementation_cuda
from molgcn.ops.layer_network.implementation import DIRECT, Direct, Kept, Outputs, register_saved_numbers

if HAS_CPU_EXTENSION:
    from molgcn.ops.layer_network import passes_cpu

LINE = 128  # bytes of the cache's lines
_GUARD = 2**20  # bytes
_loaded: dict[str, EmulatedKernel] = {}


class Emulator(Launcher):
    """A launcher that runs kernels on the CPU, as a GPU with one multiprocessor, so that a block has several tiles.

    Attributes:
        properties: properties of the GPU that plans depend on.
        hopper: whether the GPU is a Hopper or later.
        find_races: look for races in shared memory, with races.cpp.
        slice_of_warps: how far odd and even warps run ahead of each other, see `launch` of emulator.h.
        full: sources of kernels whose blocks do not fit on the GPU all at once.
        used: sources and macros of the requested kernels.
        prefetched: sources and macros of the kernels that were prefetched.
        num_launches: number of launches so far.
    """

    def __init__(self) -> None:
        self.properties = Gpu(1, H100)
        self.hopper, self.find_races, self.slice_of_warps = True, False, 0
        self.full: set[str] = set()
        self.used: list[tuple[str, Mapping[str, int]]] = []
        self.prefetched: list[tuple[str, Mapping[str, int]]] = []
        self.num_launches = 0

    @property
    def sources(self) -> set[str]:
        """The files whose kernels were requested."""
        return {source for source, _ in self.used}

    def gpu(self, device: object) -> Gpu:
        return self.properties

    def kernel(self, source: str, name: str, defines: Mapping[str, int], device: object = None, prefetch: Prefetch | None = None) -> Any:
        self.used.append((source, defines))
        self.prefetched += prefetch() if prefetch is not None else ()
        return _Kernel(self, source, name, defines)


class _Kernel:
    def __init__(self, emulator: Emulator, source: str, name: str, defines: Mapping[str, int]) -> None:
        self._emulator, self._source, self._name, self._defines = emulator, source, name, defines

    def launch(self, grid: int, block: int, shared: int, parameters: ctypes.Structure, **options: bool) -> None:
        by = self._emulator
        key = repr((self._source, self._name, sorted(self._defines.items()), by.find_races))
        if key not in _loaded:
            _loaded[key] = EmulatedKernel(self._source, self._name, self._defines, by.find_races)
        by.num_launches += 1
        _loaded[key].run(parameters, grid, block, shared, by.slice_of_warps, by.hopper)

    def resident_blocks(self, block: int, shared: int, cluster: int) -> int:
        return 0 if self._source in self._emulator.full else 128


class Compiler(Launcher):
    """A launcher that compiles kernels for an architecture and launches nothing.

    Args:
        arch: the architecture.
        only: how the names of the files that are compiled begin; or several such beginnings.

    Attributes:
        sources: files that were compiled.
    """

    def __init__(self, arch: str, only: str | tuple[str, ...] = "") -> None:
        self.sources, self._arch, self._only = set[str](), arch, only
        self._compiled: set[tuple] = set()

    def gpu(self, device: object) -> Gpu:
        return Gpu(1, H100, has_clusters=int(self._arch.removeprefix("sm_")) >= 90, has_warpgroups=self._arch == "sm_90")

    def kernel(self, source: str, name: str, defines: Mapping[str, int], device: object = None, prefetch: Prefetch | None = None) -> Any:
        key = (source, *sorted(defines.items()))
        if source.startswith(self._only) and key not in self._compiled:
            self.sources.add(source)
            self._compiled.add(key)
            assert compiles(source, defines, self._arch)
        return self

    def launch(self, *args: object, **options: object) -> None:
        pass

    def resident_blocks(self, *args: int) -> int:
        return 128


@pytest.fixture
def emulate() -> Iterator[Emulator]:
    """Run kernels on the CPU."""
    if COMPILER is None:
        pytest.skip("no C++ compiler")
    emulator = Emulator()
    with launching_by(emulator):
        yield emulator


@contextmanager
def on_gpu_emulated() -> Iterator[None]:
    """Run the operator of networks on CPU tensors as on a GPU, planning each call by itself."""
    library = torch.library.Library("molgcn", "IMPL")
    library.impl("layer_network", implementation_cuda.forward, "CPU", allow_override=True)
    library.impl("layer_network_backward", implementation_cuda.backward, "CPU", allow_override=True)
    with pytest.MonkeyPatch.context() as patch, gpu_memory():
        patch.setitem(DIRECT, "cpu", Direct(implementation_cuda.unplanned))
        yield
    library._destroy()


@contextmanager
def gpu_memory() -> Iterator[None]:
    """Save as much for backward with CPU tensors as on a GPU.

    Uninitialised memory holds NaN, or bytes of ones that begin at a line, as a GPU's memory does; nothing is written
    beyond these.
    """
    new_empty, rooms = Tensor.new_empty, []

    def poisoned(tensor: Tensor, *size: Any, dtype: torch.dtype | None = None, **options: Any) -> Tensor:
        out = new_empty(tensor, *size, dtype=dtype or tensor.dtype, **options)
        if out.dtype != torch.uint8 or type(out) is not Tensor:
            return out.fill_(torch.nan if out.is_floating_point() else -1)
        room = np.full(out.numel() + LINE + _GUARD, 0xA5, np.uint8)
        begin = -room.ctypes.data % LINE
        rooms.append(room[begin + out.numel() :])
        return torch.from_numpy(room[begin : begin + out.numel()]).fill_(0xFF)  # a storage of its own: opcheck compares offsets

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Tensor, "new_empty", poisoned)
        register_saved_numbers("cpu", implementation_cuda.saved_numbers)
        try:
            yield
        finally:
            if HAS_CPU_EXTENSION:
                register_saved_numbers("cpu", passes_cpu.saved_numbers)
    assert all((room == 0xA5).all() for room in rooms), "written beyond what was asked for"


def forward(inputs: GcnCall) -> Outputs:
    """Return the outputs of the emulated operator, for a call without head and loss."""
    return implementation_cuda.EACH.forward(layers_of(inputs))[0]


def run_emulated(
    inputs: GcnCall, grad_pooled: Tensor | None = None, dtype: torch.dtype = torch.float32, keep_graph: bool = False
) -> EmulatedResult:
    """Run the emulated operator like `stack_cases.run`, without torch's dispatch, which would take the CPU's operator.

    Memory that kernels do not write, or discard, holds NaN.
    """
    needs_grad_x, names = inputs.graph.x.requires_grad, list(leaves(inputs))
    inputs = converted(inputs, dtype)
    with torch.no_grad(), gpu_memory():
        pooled, statistics, saved, _ = forward(inputs)
        if grad_pooled is None:
            grad_pooled = torch.sin(torch.arange(pooled.numel(), dtype=torch.float64)).view_as(pooled)
        if inputs.batch_statistics:
            inputs = changed(inputs, running_means=(), running_vars=())
        given = layers_of(inputs), Kept(saved), grad_pooled.to(dtype), needs_grad_x, False
        grad_x, _, gradients = within_backward(partial(implementation_cuda.EACH.backward, *given), keep_graph)
    by_name = {"pooled": pooled, "statistics": statistics}
    return EmulatedResult(
        by_name, dict(zip(names, [*([grad_x] if needs_grad_x else []), *gradients], strict=True)), saved.view(torch.uint8)
    )


@dataclass
class EmulatedResult(Result):
    """A result, with the tensor that forward saved for backward, in its state after backward."""

    saved: Tensor


def check(
    inputs: GcnCall, output_bound: float = 1e-5, gradient_bound: float = 5e-5, grad_pooled: Tensor | None = None, floor: float = 1e-9
) -> None:
    """Check the operator's outputs and gradients against float64."""
    actual = run_emulated(inputs, grad_pooled)
    expected = run(gcn_reference, converted(inputs, torch.float64), grad_pooled)
    assert worst_molecule(actual.outputs["pooled"], expected.outputs["pooled"], floor) < output_bound
    assert worst(actual.gradients, expected.gradients, floor) < gradient_bound
