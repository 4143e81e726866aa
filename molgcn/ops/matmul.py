"""Matrix products in the precision that an operator was called with, whatever PyTorch's float32 precision setting is."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

_KEPT_BITS = ~0x1FFF  # the bits of a float32 that TF32's tensor cores read


def matmul_in(precision: str, dtype: torch.dtype) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a function that multiplies matrices on CUDA in a precision.

    PyTorch's setting is not changed, since every thread of the process sees it. If the setting differs, TF32 products are computed from
    operands without the bits that TF32's tensor cores do not read, and float32 products are computed in float64.

    Args:
        precision: "float32", "tf32" or "bf16", for float32 matrices.
        dtype: The dtype of the matrices. float64 matrices are multiplied in float64.
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
