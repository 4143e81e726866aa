"""What is made of a tensor's values, remembered for as long as the tensor lives unchanged."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

Made = TypeVar("Made")
_REMEMBERED: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


def remembered(tensor: Tensor, key: Hashable, make: Callable[[], Made]) -> Made:
    """Return what was made before of the very same tensor, if it has not been written to since; else make it.

    Everything made of a tensor is dropped when the tensor is written to or collected. Writing values past PyTorch (through NumPy or
    `.data`) goes unnoticed. Tensors of inference mode have no version, so that nothing is remembered for them.

    Args:
        tensor: whose values count.
        key: what is made, and the options that it depends on.
        make: makes it. What it returns must not hold the tensor, which would live forever.
    """
    if tensor.is_inference():
        return make()
    known: dict[Any, Any] = {}
    version, before = _REMEMBERED.get(tensor, (None, known))
    if version == tensor._version:
        known = before
    else:
        _REMEMBERED[tensor] = (tensor._version, known)
    place = (key, tensor.data_ptr(), tensor.shape)  # `.data =` changes these, not the version
    if place not in known:
        known[place] = make()
    return known[place]
