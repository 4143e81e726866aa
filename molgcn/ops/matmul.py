"""Products in the precision that an operator was asked for, whatever PyTorch's switch for float32 products says meanwhile."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_KEPT_BITS = ~0x1FFF  # of a float32, by TF32's tensor cores


def matmul_in(precision: str, dtype: torch.dtype) -> Callable[[Tensor, Tensor], Tensor]:
    """The product of matrices on CUDA in a precision.

    The switch is left as it is, since every thread of the process sees it. Where it does not say what is asked for, TF32 is formed from
    operands without the bits that its tensor cores do not read, and float32 by way of float64.

    Args:
        precision: "float32", "tf32" or "bf16", for float32 matrices.
        dtype: of the matrices; float64 ones are multiplied in float64.
    """
    if dtype != torch.float32:
        return torch.matmul
    if precision == "bf16":
        return _bf16
    switch = "tf32" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "float32"
    if precision == switch:
        return torch.matmul
    return _tf32 if precision == "tf32" else _float32


def _bf16(left: Tensor, right: Tensor) -> Tensor:
    return (left.bfloat16() @ right.bfloat16()).float()


def _tf32(left: Tensor, right: Tensor) -> Tensor:
    return torch.matmul(*((matrix.view(torch.int32) & _KEPT_BITS).view(torch.float32) for matrix in (left, right)))


def _float32(left: Tensor, right: Tensor) -> Tensor:
    return (left.double() @ right.double()).float()
