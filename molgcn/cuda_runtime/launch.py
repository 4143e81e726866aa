"""Launch the kernels of `cuda/` on PyTorch's current stream, also while a CUDA graph is captured."""

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
    """The CUDA context that PyTorch uses on a device, made current inside a `with` block.

    A new thread, such as autograd's, has no current context of its own.
    """

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
_Addresses = ctypes.c_void_p * 1


class Kernel:
    """One kernel on one device, loaded once per process (see :func:`kernel`).

    Args:
        code: The machine code that contains the kernel. The driver is made ready while it is still being compiled.
        name: The kernel's name in the machine code.
        device: The device's index.
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
        """Launch the kernel on a stream of its device.

        Args:
            grid: The number of blocks.
            block: The number of threads in a block.
            shared: The dynamic shared memory of a block, in bytes.
            parameters: The kernel's only argument, passed by value.
            cooperative: Whether all blocks run at once, so that the kernel may use a barrier over the grid.
            cluster: The number of blocks in a cluster, which can reach each other's shared memory. More than 1 needs Hopper or later.
            overlap: Whether the kernel may start before the previous one ends. The kernel then waits itself for the previous kernel's
                writes (`wait_for_previous` in cuda/device.cuh). GPUs before Hopper ignore this.
            stream: The stream; by default the current one.

        Raises:
            RuntimeError: If CUDA reports an error. The message names the kernel and the error.
        """
        driver, function = self._driver, self._function
        handle = torch._C._cuda_getCurrentRawStream(self.device) if stream is None else stream.cuda_stream
        with self._context:
            self._allow(shared)
            arguments = _Addresses(ctypes.addressof(parameters))
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
        """Return how many blocks, in whole clusters, the GPU can run at once. The arguments are those of :meth:`launch`."""
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


@contextmanager
def launching_by(launcher: Launcher) -> Iterator[None]:
    """Take all kernels and GPU properties from another launcher inside a `with` block, whatever the device."""
    global _launcher
    before, _launcher = _launcher, launcher
    try:
        yield
    finally:
        _launcher = before


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
    return _launcher.kernel(source, name, defines, device, prefetch)
