"""What operators do with tensor arguments before they pass addresses to a kernel: check them, and bring them into order in memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import attrgetter, or_
from typing import Any

import torch
from torch import Tensor
from torch._C._dynamo.guards import TensorGuards
from torch.nn import Parameter

_READ_ALONE = (torch.int32, torch.int64)  # kernels read indices and seeds one at a time
PLAIN = frozenset((Tensor, Parameter, type(None)))  # what is no subclass that would have to see a call
_MOST_KNOWN = 256  # the most forms of tensors that are remembered
_known: dict[int, tuple[Mapping[str, Sequence[int]], torch.dtype, torch.device, Any]] = {}
_dtype, _device, _shape = attrgetter("dtype"), attrgetter("device"), attrgetter("shape")


def expect(operator: str, name: str, tensor: Tensor, shape: Sequence[int], like: Tensor, dtype: torch.dtype | None = None) -> None:
    """Check one tensor argument of an operator.

    Args:
        operator: The operator's name, for the message.
        name: The argument's name, for the message.
        tensor: The argument.
        shape: The shape that it must have.
        like: A tensor on the device that it must be on.
        dtype: The dtype that it must have; None means that of `like`.

    Raises:
        ValueError: If the tensor does not fit. The message names the argument, what was expected and what was given.
    """
    dtype = like.dtype if dtype is None else dtype
    if tensor.shape != tuple(shape) or tensor.dtype != dtype or tensor.device != like.device:
        raise ValueError(
            f"{operator}: expected {name} of shape {list(shape)} in {dtype} on {like.device}, got {list(tensor.shape)} in "
            f"{tensor.dtype} on {tensor.device}"
        )


def expect_countable(operator: str, num_graphs: int, num_targets: int) -> None:
    """Check that a batch has fewer than 2^31 predictions, which kernels count in int32.

    Raises:
        ValueError: If it has more. The message says how many.
    """
    if num_graphs * num_targets >= 2**31:
        raise ValueError(f"{operator}: {num_graphs} molecules x {num_targets} targets are too many for one batch: expected fewer than 2^31")


def expect_edges(operator: str, edge_index: Tensor, like: Tensor) -> None:
    """Check that `edge_index` is an edge list, int64 [2, E], on the device of `like`; see :func:`expect`."""
    expect(operator, "edge_index", edge_index, (2, *edge_index.shape[1:2]), like, torch.int64)


def shapes_of(arguments: Iterable[Any]) -> list[torch.Size | None]:
    """Return the shapes of the tensors among arguments, and None for other arguments."""
    return [argument.shape if isinstance(argument, Tensor) else None for argument in arguments]


def expect_shapes(operator: str, arguments: Iterable[Any], shapes: list[torch.Size | None]) -> None:
    """Check that arguments have the shapes of :func:`shapes_of` that they had in forward: hooks of autograd may return any tensors.

    Raises:
        ValueError: If a shape is another one.
    """
    if (found := shapes_of(arguments)) != shapes:
        expected, got = ([shape and list(shape) for shape in of] for of in (shapes, found))
        raise ValueError(f"{operator}: tensors of shapes {expected} were saved for backward, and came back with shapes {got}")


def aligned(tensor: Tensor, multiple: int = 16) -> Tensor:
    """Return a tensor contiguous, and, unless it has integers of 32 or 64 bits, at an address that vectors can be read from.

    Args:
        tensor: The tensor. Views of other tensors and tensors from hooks of autograd may have any strides and addresses.
        multiple: The number of bytes that divides the address.
    """
    tensor = tensor.contiguous()
    return tensor if tensor.data_ptr() % multiple == 0 or tensor.dtype in _READ_ALONE else tensor.clone()


def fit(tensors: Sequence[Tensor], shapes: Mapping[str, Sequence[int]], like: Tensor) -> bool:
    """Return whether tensors have these shapes, and the dtype and the device of `like`.

    Tensors in the form that fitted last are found faster, by what `torch.compile` guards its inputs with.

    Args:
        tensors: The tensors.
        shapes: The shapes by name, in an object that does not change.
        like: A tensor.
    """
    known = _known.get(id(shapes))
    if known is not None and known[0] is shapes and known[1:3] == (like.dtype, like.device) and known[3].check(*tensors):
        return True
    alike = {*map(_dtype, tensors)} <= {like.dtype} and {*map(_device, tensors)} <= {like.device}
    fits = alike and [*map(_shape, tensors)] == [*shapes.values()]
    if fits and tensors and PLAIN.issuperset(map(type, tensors)):
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        sizes, strides = ([[*of(tensor)] for tensor in tensors] for of in (Tensor.size, Tensor.stride))  # none may differ
        guards = TensorGuards(*tensors, dynamic_dims_sizes=sizes, dynamic_dims_strides=strides)  # type: ignore[arg-type]
        _known[id(shapes)] = shapes, like.dtype, like.device, guards
    return fits


def are_aligned(tensors: Sequence[Tensor]) -> bool:
    """Return whether tensors are contiguous and begin at multiples of 16 bytes, as kernels read them."""
    return all(map(Tensor.is_contiguous, tensors)) and reduce(or_, map(Tensor.data_ptr, tensors), 0) % 16 == 0
