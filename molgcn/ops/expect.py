"""The check that operators make of a tensor before its address goes to a kernel."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def expect(operator: str, name: str, tensor: Tensor, shape: Sequence[int], like: Tensor, dtype: torch.dtype | None = None) -> None:
    """Check one tensor argument of an operator.

    Args:
        operator: the operator's name, for the message.
        name: the argument's name, for the message.
        tensor: the argument.
        shape: the shape that it must have.
        like: a tensor on the device that it must be on.
        dtype: the dtype that it must have; None takes that of `like`.

    Raises:
        ValueError: naming the argument, what was expected and what came.
    """
    dtype = like.dtype if dtype is None else dtype
    if tensor.shape != tuple(shape) or tensor.dtype != dtype or tensor.device != like.device:
        raise ValueError(
            f"{operator}: expected {name} of shape {list(shape)} in {dtype} on {like.device}, got {list(tensor.shape)} in "
            f"{tensor.dtype} on {tensor.device}"
        )
