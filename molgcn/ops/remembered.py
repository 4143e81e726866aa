"""A cache of results computed from a tensor's values, kept as long as the tensor exists and is not written to."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

Made = TypeVar("Made")
_REMEMBERED: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


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
    known: dict[Any, Any] = {}
    version, before = _REMEMBERED.get(tensor, (None, known))
    if version == tensor._version:
        known = before
    else:
        _REMEMBERED[tensor] = (tensor._version, known)
    place = (key, tensor.data_ptr(), tensor.shape)  # `.data =` changes these but not the version
    if place not in known:
        known[place] = make()
    return known[place]
