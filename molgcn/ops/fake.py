"""Register fake implementations of operators, which return the shapes and dtypes of results without their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

_Function = TypeVar("_Function", bound=Callable)


def register_fake(name: str) -> Callable[[_Function], _Function]:
    """Return a decorator that registers a function as the fake implementation of an operator, "molgcn::...".

    PyTorch looks up the module that registers one, and for each new module `inspect` goes through the files of all that are imported,
    which takes 3 ms. Here it is always the same module.

    The registered function refuses tensors of several devices, which PyTorch gives it if one of them is on the device "meta".
    """

    def register(function: _Function) -> _Function:
        def checked(*args: Any) -> Any:
            outputs = function(*args)
            devices = {
                tensor.device for value in args for tensor in (value if isinstance(value, list) else [value]) if isinstance(tensor, Tensor)
            }
            if len(devices) > 1:
                raise ValueError(f"{name}: expected all tensors on one device, got {' and '.join(sorted(map(str, devices)))}")
            return outputs

        torch.library.register_fake(name, checked)
        return function

    return register
