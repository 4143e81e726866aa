"""Call functions within a backward pass of autograd, as its engine calls operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")


class _Calling(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, leaf: Tensor, call: Callable[[], None]) -> Tensor:
        ctx.call = call
        return leaf.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        ctx.call()
        return grads[0], None


def within_backward(call: Callable[[], Result], retain_graph: bool = False) -> Result:
    """Return what a call returns in a backward pass that retains its graph or not."""
    found = list[Result]()
    with torch.enable_grad():
        out = _Calling.apply(torch.zeros((), requires_grad=True), lambda: found.append(call()))
    out.backward(retain_graph=retain_graph)
    return found[0]
