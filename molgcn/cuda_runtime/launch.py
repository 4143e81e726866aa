"""Launching kernels of `cuda/` on PyTorch's current stream, inside graph capture alike."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import torch

from molgcn.cuda_runtime.nvrtc import cubin, tool_chain
from molgcn.errors import UserError


class _Context:
    """PyTorch's context of a device, current from `with` to its end, whatever the thread had before; a new one, as autograd's, has none."""

    def __init__(self, device: int) -> None:
        with tool_chain():
            from cuda.bindings import driver

        torch.cuda.init()
        self.driver = driver
        error, self._handle = driver.cuDevicePrimaryCtxRetain(device)
        if int(error) != 0:
            raise RuntimeError(f"CUDA context of cuda:{device}: {error.name}")

    def __enter__(self) -> None:
        (error,) = self.driver.cuCtxPushCurrent(self._handle)
        if int(error) != 0:
            raise RuntimeError(f"CUDA context: {error.name}")

    def __exit__(self, *_: object) -> None:
        self.driver.cuCtxPopCurrent()


_context = cache(_Context)


class Kernel:
    """One kernel on one device; loaded once a process (see :func:`kernel`).

    Args:
        code: machine code that it is in, once it is there; the driver is made ready meanwhile.
        name: its name there.
        device: index of the device.
    """

    def __init__(self, code: Future[bytes], name: str, device: int) -> None:
        self.device = device
        self._name = name
        self._context = _context(device)
        driver = self._context.driver
        loadable = code.result()
        with self._context:
            library = self._check(driver.cuLibraryLoadData(loadable, [], [], 0, [], [], 0))
            self._function = driver.CUfunction(int(self._check(driver.cuLibraryGetKernel(library, name.encode()))))
        self._driver = driver
        self._shared = 0
        self._resident: dict[tuple[int, int, int], int] = {}
        self._overlaps = torch.cuda.get_device_properties(device).major >= 9

    def launch(
        self,
        grid: int,
        block: int,
        shared: int,
        parameters: ctypes.Structure,
        *,
        cooperative: bool = False,
        cluster: int = 1,
        overlap: bool = False,
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        """Launches on a stream of the device.

        Args:
            grid: blocks.
            block: threads in each.
            shared: bytes of dynamic shared memory in each.
            parameters: the kernel's one argument, passed by value.
            cooperative: all blocks run at once, so that a barrier over the grid may be used.
            cluster: blocks that can reach each other's shared memory; more than one from Hopper on.
            overlap: may start while the kernel before it is running, whose writes it waits for itself (`wait_for_previous` in
                cuda/device.cuh); GPUs before Hopper do not overlap.
            stream: default the current one.

        Raises:
            RuntimeError: naming the kernel and CUDA's error.
        """
        driver, function = self._driver, self._function
        handle = torch._C._cuda_getCurrentRawStream(self.device) if stream is None else stream.cuda_stream
        with self._context:
            self._allow(shared)
            arguments = (ctypes.c_void_p * 1)(ctypes.addressof(parameters))
            shape = (grid, 1, 1, block, 1, 1, shared, driver.CUstream(handle), ctypes.addressof(arguments))
            overlap = overlap and self._overlaps
            if overlap or cluster > 1:
                config = self._config(grid, block, shared, cluster, cooperative, overlap)
                config.hStream = driver.CUstream(handle)
                self._check(driver.cuLaunchKernelEx(config, function, ctypes.addressof(arguments), 0))
            elif cooperative:
                self._check(driver.cuLaunchCooperativeKernel(function, *shape))
            else:
                self._check(driver.cuLaunchKernel(function, *shape, 0))

    def resident_blocks(self, block: int, shared: int, cluster: int) -> int:
        """Blocks in clusters that find room on the GPU at once; the arguments are those of :meth:`launch`."""
        key = (block, shared, cluster)
        if key not in self._resident:
            with self._context:
                self._allow(shared)
                config = self._config(cluster, block, shared, cluster)
                self._resident[key] = cluster * int(self._check(self._driver.cuOccupancyMaxActiveClusters(self._function, config)))
        return self._resident[key]

    def _allow(self, shared: int) -> None:
        if shared > self._shared:
            driver = self._driver
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            kernel = driver.CUkernel(int(self._function))
            self._check(driver.cuKernelSetAttribute(attribute, shared, kernel, driver.CUdevice(self.device)))
            self._shared = shared

    def _config(self, grid: int, block: int, shared: int, cluster: int, cooperative: bool = False, overlap: bool = False) -> Any:
        driver = self._driver
        config, identifiers, attributes = driver.CUlaunchConfig(), driver.CUlaunchAttributeID, []
        config.gridDimX, config.gridDimY, config.gridDimZ = grid, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = block, 1, 1
        config.sharedMemBytes = shared
        if cluster > 1:
            attribute = driver.CUlaunchAttribute()
            attribute.id = identifiers.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
            attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z = cluster, 1, 1
            attributes.append(attribute)
        if cooperative:
            attribute = driver.CUlaunchAttribute()
            attribute.id = identifiers.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
            attribute.value.cooperative = 1
            attributes.append(attribute)
        if overlap:
            attribute = driver.CUlaunchAttribute()
            attribute.id = identifiers.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            attributes.append(attribute)
        config.attrs, config.numAttrs = attributes, len(attributes)
        return config

    def _check(self, result: tuple) -> Any:
        if int(result[0]) != 0:
            raise RuntimeError(f"CUDA kernel {self._name} on cuda:{self.device}: {result[0].name}")
        return result[-1]


class Gpu(NamedTuple):
    """What plans depend on.

    Attributes:
        num_multiprocessors: of the device.
        shared_limit: bytes of shared memory that one block may have.
        has_clusters: whether blocks can reach each other's shared memory.
        cache_bytes: of the cache that all multiprocessors share.
        num_barriers: named barriers of a block, the first of which is the whole block's.
        gradient_bytes: most that a backward keeps of gradients until the weight gradients of their layers are formed together.
    """

    num_multiprocessors: int
    shared_limit: int
    has_clusters: bool = False
    cache_bytes: int = 0
    num_barriers: int = 16
    gradient_bytes: int = 2**29


@cache
def _gpu(device: torch.device) -> Gpu:
    properties = torch.cuda.get_device_properties(device)
    shared_limit: int = properties.shared_memory_per_block_optin  # type: ignore[attr-defined]
    return Gpu(properties.multi_processor_count, shared_limit, properties.major >= 9, properties.L2_cache_size)


MIN_CAPABILITY = 8  # of a GPU: its tensor cores know TF32 and bf16
_Macros = tuple[tuple[str, int], ...]
Prefetch = Callable[[], Iterable[tuple[str, Mapping[str, int]]]]


def _sorted(defines: Mapping[str, int]) -> _Macros:
    return tuple(sorted(defines.items()))


class Launcher:
    """Gives kernels, each compiled once an architecture, in the background, and loaded once a device; a subclass may stand in for a GPU.

    Args:
        compile_code: gives the machine code of a file of `cuda/`, with macros, for an architecture.
        load: makes a kernel of the code that it is in, its name and the device's index.
        properties: gives `major`, `minor` and `name` of the device with an index.
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
        """Return the code of one compilation; one that failed is tried again, since its reason, as a full memory, may have passed."""
        key = (source, defines, arch)
        code = self._codes.get(key)
        if code is None or (code.done() and code.exception() is not None):
            code = self._codes[key] = self._compilers.submit(self._compile, source, dict(defines), arch)
        return code


_launcher = Launcher()


@contextmanager
def launching_by(launcher: Launcher) -> Iterator[None]:
    """Take kernels, and what plans know of a GPU, from another launcher within, whatever the device."""
    global _launcher
    before, _launcher = _launcher, launcher
    try:
        yield
    finally:
        _launcher = before


def gpu(device: torch.device) -> Gpu:
    """Return what plans depend on."""
    return _launcher.gpu(device)


def kernel(
    source: str,
    name: str,
    defines: Mapping[str, int],
    device: torch.device,
    prefetch: Prefetch | None = None,
) -> Kernel:
    """The kernel `name` of `cuda/<source>`, compiled for the device on first use.

    Args:
        source: name of the file in `cuda/`.
        name: of the kernel.
        defines: macros, which specialise it.
        device: where it is to run.
        prefetch: gives sources and macros of what will be wanted next; asked on first use, they are compiled at the same time.

    Raises:
        UserError: when the CUDA tool chain is not installed, or the GPU is too old for the kernels or too new for NVRTC.
    """
    return _launcher.kernel(source, name, defines, device, prefetch)
