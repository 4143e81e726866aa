"""Find out whether a function reads values of tensors on the host, which a CUDA graph cannot."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_TAGS = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
_NAMES = {"_local_scalar_dense": "item()", "index": "an index of booleans", "copy_": "cpu()", "_to_copy": "cpu()"}


class ReadsBack(TorchDispatchMode):
    """Notes the first operation inside a `with` block that needs values of tensors on the host, in this thread only.

    Attributes:
        found: the operation, in words; None where there was none.
    """

    def __init__(self) -> None:
        super().__init__()
        self.found: str | None = None

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Do an operation."""
        result = func(*args, **(kwargs or {}))
        if self.found is None and _reads(func, args, result):
            name = func.overloadpacket.__name__
            self.found = _NAMES.get(name, f"{name}()")
        return result


def _reads(func: Any, args: tuple[Any, ...], result: Any) -> bool:
    if func is torch.ops.aten.index.Tensor:
        return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    if _TAGS.intersection(func.tags):
        return True
    tensors = [one for one in args if isinstance(one, Tensor)]
    return isinstance(result, Tensor) and result.device.type == "cpu" and any(one.is_cuda for one in tensors)
