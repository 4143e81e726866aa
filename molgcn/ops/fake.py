"""Register fake implementations of operators, which return the shapes and dtypes of results without their values."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch

_Function = TypeVar("_Function", bound=Callable)


def register_fake(name: str) -> Callable[[_Function], _Function]:
    """Return a decorator that registers a function as the fake implementation of an operator, "molgcn::...".

    PyTorch looks up the module that registers one, and for each new module `inspect` goes through the files of all that are imported,
    which takes 3 ms. Here it is always the same module.
    """

    def register(function: _Function) -> _Function:
        torch.library.register_fake(name, function)
        return function

    return register
