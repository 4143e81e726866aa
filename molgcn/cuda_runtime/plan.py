"""Record the launches of a computation once, and replay them with other addresses and counts.

A computation is recorded on tensors of its own. Each address among its arguments is found again in one of these tensors, its buffers, and
becomes a hole, which a call fills with the address of its own buffer. So a plan holds no tensor, and serves any number of threads.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from molgcn.cuda_runtime.kernel import Kernel, native_driver
from molgcn.cuda_runtime.launch import recorded

_ALLOCATIONS = frozenset((torch.ops.aten.new_empty.default, torch.ops.aten.empty.memory_format, torch.ops.aten.empty_like.default))


class Place(NamedTuple):
    """A place in a buffer.

    Attributes:
        buffer: The number of the buffer.
        offset: The distance from its address, in bytes.
    """

    buffer: int
    offset: int = 0


Region = tuple[Tensor, Place]
"""Memory, and the place that it stands for."""


class Launch(NamedTuple):
    """One launch of a plan.

    Attributes:
        kernel: The kernel.
        shape: The number of blocks, the threads of a block and its shared memory in bytes.
        options: The other arguments of :meth:`.launch.Kernel.launch`.
        arguments: The kernel's argument, as it was recorded.
        holes: Where addresses lie in the argument, in bytes, and which they are.
        counts: Where counts lie in the argument, in bytes, and the number of each.
    """

    kernel: Any
    shape: tuple[int, int, int]
    options: Mapping[str, Any]
    arguments: ctypes.Structure
    holes: tuple[tuple[int, Place], ...] = ()
    counts: tuple[tuple[int, int], ...] = ()


class Recording(TorchDispatchMode):
    """The launches and the memory of a computation.

    Attributes:
        launches: The launches in their order, without holes.
        allocated: The tensors that the computation has made. They are kept, so that no two have the same address.
    """

    def __init__(self) -> None:
        super().__init__()
        self.launches: list[Launch] = []
        self.allocated: list[Tensor] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: tuple = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Note the memory that is made. Only launches of this project's kernels can be replayed.

        Raises:
            RuntimeError: If PyTorch would compute something.
        """
        found = function(*args, **(kwargs or {}))
        if function in _ALLOCATIONS:
            self.allocated.append(found)
        elif not function.is_view:
            raise RuntimeError(f"A plan has launches only, but its computation calls {function}.")
        return found


@contextmanager
def recording() -> Iterator[Recording]:
    """Record the launches of this thread inside a `with` block, instead of launching."""
    with Recording() as made, recorded(lambda kernel: _Recorded(kernel, made)):
        yield made


class _Recorded:
    """A kernel whose launches are recorded."""

    def __init__(self, kernel: Any, made: Recording) -> None:
        self._kernel, self._made = kernel, made
        self.resident_blocks = kernel.resident_blocks

    def launch(self, grid: int, block: int, shared: int, parameters: ctypes.Structure, **options: Any) -> None:
        arguments = type(parameters).from_buffer_copy(parameters)
        self._made.launches.append(Launch(self._kernel, (grid, block, shared), options, arguments))


class Plan:
    """Launches whose arguments are known but for addresses and counts.

    Args:
        launches: The launches as recorded.
        regions: The memory that the computation was recorded with.
        num_buffers: The number of buffers.
        num_counts: The number of counts.
        counts: The fields of arguments that may be counts, and which count each of a field's recorded numbers is.

    Raises:
        RuntimeError: If an argument holds an address outside of `regions`.
    """

    def __init__(
        self,
        launches: Sequence[Launch],
        regions: Sequence[Region],
        num_buffers: int,
        num_counts: int = 0,
        counts: Mapping[str, Mapping[int, int]] | None = None,
    ) -> None:
        known = Regions(regions)
        self._launches = [_with_holes(launch, known, counts or {}) for launch in launches]
        self._native = _native(self._launches, num_buffers, num_counts)

    def run(self, addresses: Sequence[int], counts: Sequence[int] = ()) -> None:
        """Launch all kernels on the current stream.

        Args:
            addresses: The address of each buffer.
            counts: The counts.
        """
        if self._native is not None:
            self._native(addresses, counts)
            return
        for launch in self._launches:
            arguments = type(launch.arguments).from_buffer_copy(launch.arguments)
            for at, place in launch.holes:
                ctypes.c_uint64.from_buffer(arguments, at).value = addresses[place.buffer] + place.offset
            for at, count in launch.counts:
                ctypes.c_int32.from_buffer(arguments, at).value = counts[count]
            launch.kernel.launch(*launch.shape, arguments, **launch.options)


def _native(launches: Sequence[Launch], num_buffers: int, num_counts: int) -> Callable[[Sequence[int], Sequence[int]], None] | None:
    """Return a function that replays launches in C++, given addresses and counts; None where Python has to."""
    kernels = [launch.kernel for launch in launches]
    if not kernels or not all(isinstance(kernel, Kernel) for kernel in kernels) or native_driver() is None:
        return None
    import molgcn._launch as _launch

    made = []
    for launch in launches:
        holes = [(at, *place) for at, place in launch.holes]
        made.append((launch.kernel.native(*launch.shape, **launch.options), bytes(launch.arguments), holes, launch.counts))
    plan, context, device = _launch.Plan(native_driver(), made, num_buffers, num_counts), kernels[0].context, kernels[0].device

    def run(addresses: Sequence[int], counts: Sequence[int]) -> None:
        plan.run(context, torch._C._cuda_getCurrentRawStream(device), addresses, counts)

    return run


class Regions:
    """Memory in order of its address. Of regions that overlap, the one that begins last counts.

    Args:
        regions: The memory.
    """

    def __init__(self, regions: Sequence[Region]) -> None:
        spans = [(tensor.data_ptr(), tensor.numel() * tensor.element_size(), place) for tensor, place in regions]
        self._spans = sorted((span for span in spans if span[1] > 0), key=lambda span: (span[0], -span[1]))
        self._begins = [begin for begin, _, _ in self._spans]

    def place(self, address: int) -> Place:
        """Return the place of an address.

        Raises:
            RuntimeError: If it is outside of all regions.
        """
        for begin, size, place in reversed(self._spans[: bisect_right(self._begins, address)]):
            if address < begin + size:
                return Place(place.buffer, place.offset + address - begin)
        raise RuntimeError(f"A launch reads or writes memory that a plan does not know, at {address:#x}.")


def _with_holes(launch: Launch, regions: Regions, counts: Mapping[str, Mapping[int, int]]) -> Launch:
    arguments, kind = launch.arguments, type(launch.arguments)
    addresses = ((at, ctypes.c_uint64.from_buffer(arguments, at).value) for at in _pointers(kind))
    numbers = ((name, getattr(arguments, name)) for name in counts if hasattr(kind, name))
    return launch._replace(
        holes=tuple((at, regions.place(address)) for at, address in addresses if address != 0),
        counts=tuple((getattr(kind, name).offset, counts[name][number]) for name, number in numbers if number in counts[name]),
    )


@cache
def _pointers(kind: Any) -> tuple[int, ...]:
    """Return where a struct or array has pointers, in bytes."""
    if kind is ctypes.c_uint64:
        return (0,)
    if issubclass(kind, ctypes.Array):
        size = ctypes.sizeof(kind._type_)
        return tuple(index * size + at for index in range(kind._length_) for at in _pointers(kind._type_))
    if not issubclass(kind, ctypes.Structure):
        return ()
    return tuple(getattr(kind, name).offset + at for name, field in kind._fields_ for at in _pointers(field))
