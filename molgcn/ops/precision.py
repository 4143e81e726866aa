"""How precisely products are to be computed, by PyTorch's own switches."""

from __future__ import annotations

import torch
from torch import Tensor


def allowed_precision(device: torch.device) -> str:
    """What PyTorch's own switches allow: autocast's dtype, else the float32 matmul precision."""
    if torch.is_autocast_enabled(device.type) and torch.get_autocast_dtype(device.type) == torch.bfloat16:
        return "bf16"
    precision = _matmul_precision()
    if precision == "bf16" and torch.compiler.is_compiling():
        return "tf32"  # no less than was asked for when the switch is turned from "medium" to "high"
    return precision


@torch.compiler.assume_constant_result  # torch.compile compiles anew when TF32 is turned on or off
def _matmul_precision() -> str:
    if torch.backends.cuda.matmul.fp32_precision != "tf32":
        return "float32"
    try:
        return "bf16" if torch.get_float32_matmul_precision() == "medium" else "tf32"
    except RuntimeError:  # turned on by `torch.backends`, which torch.get_float32_matmul_precision does not know of
        return "tf32"


def without_bfloat16(outputs: Tensor) -> Tensor:
    """Return a network's outputs as losses take them: in float32 where autocast left them in bfloat16."""
    return outputs.float() if outputs.dtype == torch.bfloat16 else outputs
