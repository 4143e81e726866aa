"""One kernel on one device, which C++ launches (`native/launch.cpp`), or Python where that was not built."""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

from molgcn.cuda_runtime.nvrtc import tool_chain
from molgcn.extension import check_format

try:
    import molgcn._launch as _launch
except ImportError:
    _launch = None
else:
    check_format(_launch)

log = logging.getLogger(__name__)


class _Context:
    """The CUDA context that PyTorch uses on a device."""

    def __init__(self, device: int) -> None:
        with tool_chain():
            from cuda.bindings import driver

        torch.cuda.init()
        self.driver = driver
        error, self._handle = driver.cuDevicePrimaryCtxRetain(device)
        if int(error) != 0:
            raise RuntimeError(f"CUDA context of cuda:{device}: {error.name}")
        self.address = int(self._handle)

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make the context current inside a `with` block. A new thread, such as autograd's, has none of its own.

        What the block loads may be loaded while a CUDA graph is being captured.
        """
        driver = self.driver
        self._check(driver.cuCtxPushCurrent(self._handle))
        mode = self._check(driver.cuThreadExchangeStreamCaptureMode(driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED))
        try:
            yield
        finally:
            driver.cuThreadExchangeStreamCaptureMode(mode)
            driver.cuCtxPopCurrent()

    @staticmethod
    def _check(result: tuple) -> Any:
        if int(result[0]) != 0:
            raise RuntimeError(f"CUDA context: {result[0].name}")
        return result[-1]


_context = cache(_Context)
_Addresses = ctypes.c_void_p * 1


@cache
def native_driver() -> Any:
    """Return the driver as `native/launch.cpp` calls it, or None where that was not built. This is said once."""
    if _launch is None:
        log.warning("molgcn was installed without its C++ extensions: Python launches kernels, which takes the host several times longer.")
        return None
    return _launch.Driver("libcuda.so.1")


class Kernel:
    """One kernel on one device, loaded once per process (see :func:`kernel`).

    Args:
        code: The machine code that contains the kernel. The driver is made ready while it is still being compiled.
        name: The kernel's name in the machine code.
        device: The device's index.

    Attributes:
        context: The address of the device's context.
    """

    def __init__(self, code: Future[bytes], name: str, device: int) -> None:
        self.device = device
        self._name = name
        self._context = _context(device)
        self.context = self._context.address
        driver = self._context.driver
        loadable = code.result()
        with self._context.current():
            library = self._check(driver.cuLibraryLoadData(loadable, [], [], 0, [], [], 0))
            found = self._check(driver.cuLibraryGetKernel(library, name.encode()))
            self._check(driver.cuKernelGetFunction(found))  # loads it now: its first launch may be captured
            self._function = driver.CUfunction(int(found))
        self._driver = driver
        self._native = native_driver()
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
        handle = torch._C._cuda_getCurrentRawStream(self.device) if stream is None else stream.cuda_stream
        if self._native is not None:
            it = self.native(grid, block, shared, cooperative=cooperative, cluster=cluster, overlap=overlap)
            self._native.launch(self.context, handle, it, ctypes.addressof(parameters))
            return
        driver, function = self._driver, self._function
        with self._context.current():
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

    def native(self, grid: int, block: int, shared: int, *, cooperative: bool = False, cluster: int = 1, overlap: bool = False) -> tuple:
        """Return the launch as `native/launch.cpp` takes it, after allowing the kernel its shared memory."""
        if shared > self._shared:
            with self._context.current():
                self._allow(shared)
        name = f"{self._name} on cuda:{self.device}"
        return int(self._function), grid, block, shared, cluster, cooperative, overlap and self._overlaps, name

    def resident_blocks(self, block: int, shared: int, cluster: int) -> int:
        """Return how many blocks, in whole clusters, the GPU can run at once. The arguments are those of :meth:`launch`."""
        key = (block, shared, cluster)
        if key not in self._resident:
            with self._context.current():
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
