"""Launching kernels of `cuda/` on PyTorch's current stream, inside graph capture alike."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from functools import cache, cached_property
from typing import Any, NamedTuple

import torch

from molgcn.ops.nvrtc import cubin


class _Context:
    """PyTorch's context of a device, current from `with` to its end, whatever the thread had before; a new one, as autograd's, has none."""

    def __init__(self, device: int) -> None:
        from cuda.bindings import driver

        torch.cuda.init()
        self._driver = driver
        error, self._handle = driver.cuDevicePrimaryCtxRetain(device)
        if int(error) != 0:
            raise RuntimeError(f"CUDA context of cuda:{device}: {error.name}")

    def __enter__(self) -> None:
        (error,) = self._driver.cuCtxPushCurrent(self._handle)
        if int(error) != 0:
            raise RuntimeError(f"CUDA context: {error.name}")

    def __exit__(self, *_: object) -> None:
        self._driver.cuCtxPopCurrent()


_context = cache(_Context)


class Kernel:
    """One kernel on one device; loaded once a process (see :func:`kernel`)."""

    def __init__(self, source: str, name: str, defines: Mapping[str, int], device: int) -> None:
        from cuda.bindings import driver
        from cuda.core import ObjectCode

        properties = torch.cuda.get_device_properties(device)
        self.device = device
        self._name = name
        self._context = _context(device)
        with self._context:
            self._code = ObjectCode.from_cubin(cubin(source, defines, f"sm_{properties.major}{properties.minor}"))
            self._kernel = self._code.get_kernel(name)
            self._function = driver.CUfunction(int(self._kernel.handle))
        self._driver = driver
        self._shared = 0
        self._overlaps = properties.major >= 9

    @cached_property
    def attributes(self) -> Any:
        """`cuda.core`'s view of registers, local memory and the like on this device."""
        return self._kernel.attributes[self.device]

    def launch(
        self,
        grid: int,
        block: int,
        shared: int,
        parameters: ctypes.Structure,
        *,
        cooperative: bool = False,
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
            overlap: may start while the kernel before it is running, whose writes it waits for itself (`wait_for_previous` in
                cuda/device.cuh); GPUs before Hopper do not overlap.
            stream: default the current one.

        Raises:
            RuntimeError: naming the kernel and CUDA's error.
        """
        driver, function = self._driver, self._function
        handle = (stream or torch.cuda.current_stream(self.device)).cuda_stream
        with self._context:
            if shared > self._shared:
                attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
                self._check(driver.cuKernelSetAttribute(attribute, shared, driver.CUkernel(int(function)), driver.CUdevice(self.device)))
                self._shared = shared
            arguments = (ctypes.c_void_p * 1)(ctypes.addressof(parameters))
            shape = (grid, 1, 1, block, 1, 1, shared, driver.CUstream(handle), ctypes.addressof(arguments))
            if overlap and self._overlaps:
                config = driver.CUlaunchConfig()
                config.gridDimX, config.gridDimY, config.gridDimZ = grid, 1, 1
                config.blockDimX, config.blockDimY, config.blockDimZ = block, 1, 1
                config.sharedMemBytes, config.hStream = shared, driver.CUstream(handle)
                attribute = driver.CUlaunchAttribute()
                attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
                attribute.value.programmaticStreamSerializationAllowed = 1
                config.attrs, config.numAttrs = [attribute], 1
                self._check(driver.cuLaunchKernelEx(config, function, ctypes.addressof(arguments), 0))
            elif cooperative:
                self._check(driver.cuLaunchCooperativeKernel(function, *shape))
            else:
                self._check(driver.cuLaunchKernel(function, *shape, 0))

    def _check(self, result: tuple) -> None:
        if int(result[0]) != 0:
            raise RuntimeError(f"CUDA kernel {self._name} on cuda:{self.device}: {result[0].name}")


class Gpu(NamedTuple):
    """What plans depend on.

    Attributes:
        num_multiprocessors: of the device.
        shared_limit: bytes of shared memory that one block may have.
    """

    num_multiprocessors: int
    shared_limit: int


@cache
def gpu(device: torch.device) -> Gpu:
    """The device's :class:`Gpu`."""
    properties = torch.cuda.get_device_properties(device)
    return Gpu(properties.multi_processor_count, properties.shared_memory_per_block_optin)  # type: ignore[attr-defined]


@cache
def _kernel(source: str, name: str, defines: tuple[tuple[str, int], ...], device: int) -> Kernel:
    return Kernel(source, name, dict(defines), device)


def kernel(source: str, name: str, defines: Mapping[str, int], device: torch.device) -> Kernel:
    """The kernel `name` of `cuda/<source>`, compiled for the device on first use.

    Raises:
        UserError: when the CUDA tool chain is not installed.
    """
    index = device.index if device.index is not None else torch.cuda.current_device()
    return _kernel(source, name, tuple(sorted(defines.items())), index)
