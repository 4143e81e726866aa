"""Translations that torch's ONNX exporter lacks, for `torch.onnx.export(..., custom_translation_table=TRANSLATIONS)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _stable_sort(self: Any, *, stable: bool = True, dim: int = -1, descending: bool = False) -> Any:
    """Return the sorted values and their positions by ONNX's TopK, which is stable: the lower position comes first among equals."""
    from onnxscript import opset18

    op: Any = opset18
    length = op.Gather(op.Shape(self), op.Constant(value_ints=[dim]))
    return op.TopK(self, length, axis=dim, largest=int(descending), sorted=1)


TRANSLATIONS: dict[Any, Callable] = {torch.ops.aten.sort.stable: _stable_sort}
