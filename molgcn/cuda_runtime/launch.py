"""Launch the kernels of `cuda/` on PyTorch's current stream, also while a CUDA graph is captured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from threading import local
from typing import Any, NamedTuple

import torch

from molgcn.cuda_runtime.kernel import Kernel
from molgcn.cuda_runtime.nvrtc import cubin
from molgcn.errors import UserError


class Gpu(NamedTuple):
    """The properties of a GPU that launch plans depend on.

    Attributes:
        num_multiprocessors: The number of streaming multiprocessors.
        shared_limit: The most shared memory that one block may have, in bytes.
        has_clusters: Whether blocks can reach each other's shared memory (thread block clusters).
        cache_bytes: The size of the L2 cache in bytes.
        num_barriers: The number of named barriers of a block. The first one is `__syncthreads`'.
        gradient_bytes: The most memory, in bytes, for layer gradients that backward keeps until it computes several layers' weight
            gradients in one launch.
        has_warpgroups: Whether four warps can multiply matrices together, asynchronously (`wgmma`, which only Hopper has).
    """

    num_multiprocessors: int
    shared_limit: int
    has_clusters: bool = False
    cache_bytes: int = 0
    num_barriers: int = 16
    gradient_bytes: int = 2**29
    has_warpgroups: bool = False


@cache
def _gpu(device: torch.device) -> Gpu:
    properties = torch.cuda.get_device_properties(device)
    shared_limit: int = properties.shared_memory_per_block_optin  # type: ignore[attr-defined]
    has_warpgroups = (properties.major, properties.minor) == (9, 0)
    return Gpu(
        properties.multi_processor_count, shared_limit, properties.major >= 9, properties.L2_cache_size, has_warpgroups=has_warpgroups
    )


MIN_CAPABILITY = 8  # the first compute capability whose tensor cores multiply TF32 and bfloat16
_Macros = tuple[tuple[str, int], ...]
Prefetch = Callable[[], Iterable[tuple[str, Mapping[str, int]]]]


def _sorted(defines: Mapping[str, int]) -> _Macros:
    return tuple(sorted(defines.items()))


class Launcher:
    """Compile kernels in background threads, once per architecture, and load them, once per device.

    A subclass may stand in for a GPU.

    Args:
        compile_code: Returns the machine code of a file of `cuda/`, given its name, its macros and the architecture.
        load: Returns a kernel, given its machine code, its name and the device's index.
        properties: Returns an object with `major`, `minor` and `name` of a device, given the device's index.
    """

    def __init__(
        self,
        compile_code: Callable[[str, Mapping[str, int], str], bytes] = cubin,
        load: Callable[[Future[bytes], str, int], Kernel] = Kernel,
        properties: Callable[[int], Any] = torch.cuda.get_device_properties,
    ) -> None:
        self._compile, self._load, self._properties = compile_code, load, properties
        self._compilers = ThreadPoolExecutor(thread_name_prefix="molgcn-nvrtc")
        self._codes: dict[tuple[str, _Macros, str], Future[bytes]] = {}
        self._kernels: dict[tuple[str, str, _Macros, int], Kernel] = {}

    def gpu(self, device: torch.device) -> Gpu:
        """See :func:`gpu`."""
        return _gpu(device)

    def kernel(self, source: str, name: str, defines: Mapping[str, int], device: torch.device, prefetch: Prefetch | None = None) -> Kernel:
        """See :func:`kernel`."""
        index = device.index if device.index is not None else torch.cuda.current_device()
        key = (source, name, _sorted(defines), index)
        if key not in self._kernels:
            properties = self._properties(index)
            if properties.major < MIN_CAPABILITY:
                raise UserError(
                    f"backend=fused needs a GPU of compute capability {MIN_CAPABILITY}.0 (Ampere) or later; cuda:{index} "
                    f"({properties.name}) has {properties.major}.{properties.minor}. Use backend=pyg, or trainer.accelerator=cpu."
                )
            arch = f"sm_{properties.major}{properties.minor}"
            code = self._code(source, key[2], arch)
            for other, macros in prefetch() if prefetch is not None else ():
                self._code(other, _sorted(macros), arch)
            self._kernels[key] = self._load(code, name, index)
        return self._kernels[key]

    def _code(self, source: str, defines: _Macros, arch: str) -> Future[bytes]:
        """Return the machine code of one compilation. A failed one is tried again, since its cause, such as full memory, may be gone."""
        key = (source, defines, arch)
        code = self._codes.get(key)
        if code is None or (code.done() and code.exception() is not None):
            code = self._codes[key] = self._compilers.submit(self._compile, source, dict(defines), arch)
        return code


_launcher = Launcher()
_recorders = local()


@contextmanager
def launching_by(launcher: Launcher) -> Iterator[None]:
    """Take all kernels and GPU properties from another launcher inside a `with` block, whatever the device."""
    global _launcher
    before, _launcher = _launcher, launcher
    try:
        yield
    finally:
        _launcher = before


@contextmanager
def recorded(recorder: Callable[[Kernel], Any]) -> Iterator[None]:
    """Put what `recorder` returns in the place of each kernel that this thread asks for inside a `with` block."""
    before, _recorders.current = getattr(_recorders, "current", None), recorder
    try:
        yield
    finally:
        _recorders.current = before


def launcher() -> Launcher:
    """Return the launcher that kernels are taken from."""
    return _launcher


def gpu(device: torch.device) -> Gpu:
    """Return the properties of a device that launch plans depend on."""
    return _launcher.gpu(device)


def kernel(
    source: str,
    name: str,
    defines: Mapping[str, int],
    device: torch.device,
    prefetch: Prefetch | None = None,
) -> Kernel:
    """Return the kernel `name` of `cuda/<source>`, compiled for the device on first use.

    Args:
        source: The name of a file in `cuda/`.
        name: The kernel's name.
        defines: The macros that specialise the kernel.
        device: The device that the kernel runs on.
        prefetch: Returns the sources and macros of the kernels that are needed next. It is called on first use, and they are compiled at
            the same time.

    Raises:
        UserError: If the CUDA tool chain is not installed, or the GPU is too old for the kernels or too new for NVRTC.
    """
    found, recorder = _launcher.kernel(source, name, defines, device, prefetch), getattr(_recorders, "current", None)
    return found if recorder is None else recorder(found)
