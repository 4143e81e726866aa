"""The precision of matrix products that PyTorch's own settings allow."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor


def allowed_precision(device: torch.device) -> str:
    """Return the lowest precision of products that PyTorch's settings allow: "float32", "tf32" or "bf16".

    It follows autocast if that is bfloat16, and otherwise the float32 matmul precision.
    """
    if torch.is_autocast_enabled(device.type) and torch.get_autocast_dtype(device.type) == torch.bfloat16:
        return "bf16"
    precision = _matmul_precision()
    if precision == "bf16" and torch.compiler.is_compiling():
        return "tf32"  # a compiled model must not stay in bf16 when the setting changes from "medium" to "high"
    return precision


def without_autocast(device_type: str) -> AbstractContextManager[None]:
    """Return a context in which autocast is off. `torch.autocast` itself takes longer on the host, where it is off already."""
    return torch.autocast(device_type, enabled=False) if torch.is_autocast_enabled(device_type) else nullcontext()


def _matmul_precision() -> str:
    if torch.backends.cuda.matmul.fp32_precision != "tf32":
        return "float32"
    try:
        return "bf16" if torch.get_float32_matmul_precision() == "medium" else "tf32"
    except RuntimeError:  # TF32 was turned on by `torch.backends`, which torch.get_float32_matmul_precision does not support
        return "tf32"


# torch.compile takes the result as constant, and compiles again when TF32 is turned on or off. It is what
# `torch.compiler.assume_constant_result` sets, which imports the compiler: that takes a second, also where nothing is compiled.
_matmul_precision._dynamo_marked_constant = True  # type: ignore[attr-defined]


def without_bfloat16(outputs: Tensor) -> Tensor:
    """Return a network's outputs in the dtype of its loss: float32 if autocast left them in bfloat16, otherwise unchanged."""
    return outputs.float() if outputs.dtype == torch.bfloat16 else outputs
