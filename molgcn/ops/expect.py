"""The check of a tensor argument, which operators make before they pass its address to a kernel."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


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
