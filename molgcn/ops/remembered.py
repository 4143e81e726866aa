"""A cache of results computed from a tensor's values, kept as long as the tensor exists and is not written to."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple, TypeVar

from torch import Tensor

Made = TypeVar("Made")


class _Memory(NamedTuple):
    """The results of one tensor.

    Attributes:
        tensor: The tensor, which is not kept alive.
        state: What shows a write to the tensor: its version, and its address, shape and strides, which `.data =` changes but not the
            version.
        made: The results by their keys.
    """

    tensor: weakref.ref[Tensor]
    state: tuple
    made: dict[Hashable, Any]


_MEMORIES: dict[int, _Memory] = {}  # by the tensor's id


def remembered(tensor: Tensor, key: Hashable, make: Callable[[], Made]) -> Made:
    """Return the result that was made earlier from the very same tensor, or make it if there is none.

    All results of a tensor are dropped when the tensor is written to or freed. Writes that PyTorch does not see, through NumPy or
    `.data`, are not noticed. Tensors made in inference mode have no version counter, so nothing is remembered for them.

    Args:
        tensor: The tensor that the result is made from.
        key: The kind of result and the options that it depends on.
        make: Makes the result. The result must not hold the tensor, which would then never be freed.
    """
    if tensor.is_inference():
        return make()
    identity, state = id(tensor), (tensor._version, tensor.data_ptr(), tensor.shape, tensor.stride())
    memory = _MEMORIES.get(identity)
    if memory is None or memory.state != state or memory.tensor() is not tensor:
        reference = weakref.ref(tensor, lambda freed: _forget(identity, freed))
        memory = _MEMORIES[identity] = _Memory(reference, state, {})
    made = memory.made
    if key not in made:
        made[key] = make()
    found: Made = made[key]
    return found


def alike(arguments: Iterable[Any]) -> tuple:
    """Return a key that calls share if their tensors agree in shape, dtype and device, and their other arguments in value."""
    return tuple([(given.shape, given.dtype, given.device) if isinstance(given, Tensor) else given for given in arguments])


def _forget(identity: int, freed: weakref.ref[Tensor]) -> None:
    memory = _MEMORIES.get(identity)
    if memory is not None and memory.tensor is freed:
        del _MEMORIES[identity]
