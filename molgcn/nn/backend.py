"""The backends a model can run on: a closed table of names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from molgcn.cuda_runtime.launch import MIN_CAPABILITY
from molgcn.errors import UserError
from molgcn.nn.options import NO_EXTENSION
from molgcn.ops import HAS_CPU_EXTENSION
from molgcn.ops.gcn_layers_plan import MAX_HIDDEN
from molgcn.ops.head_loss import Objective
from molgcn.strategies import check_known

if TYPE_CHECKING:
    from molgcn.nn.gcn import GCN

BACKENDS = ("auto", "fused", "pyg")


class Backend(Protocol):
    """How a :class:`molgcn.nn.GCN` computes: a module with these four names."""

    name: str

    def conv(self, model: GCN, in_channels: int, out_channels: int) -> nn.Module:
        """One layer's parameters: `lin.weight` [out, in] and `bias` [out]."""
        ...

    def predictions(self, model: GCN, batch: Any) -> Tensor:
        """All layers, the pooling and the head: [B, T]."""
        ...

    def loss(self, model: GCN, batch: Any, objective: Objective) -> tuple[Tensor, Tensor]:
        """The loss of the predictions, and float64 [2], sum and number of its terms."""
        ...


def resolve_backend(name: str, hidden_channels: int = 1) -> Backend:
    """The backend called `name`; "auto" is fused where its operators can train such a model on this machine, else pyg.

    Args:
        name: auto, fused or pyg.
        hidden_channels: the model's width: with a GPU, "auto" takes pyg beyond the 512 that kernels of our own compute.

    Raises:
        UserError: for an unknown name, or a backend that this machine does not have.
    """
    if name not in BACKENDS:
        raise UserError(f"backend={name} is unknown. Expected one of {', '.join(BACKENDS)}.")
    cuda = torch.cuda.is_available()
    if name == "fused" and not (HAS_CPU_EXTENSION or cuda):
        raise UserError(NO_EXTENSION)
    on_gpu = cuda and hidden_channels <= MAX_HIDDEN and torch.cuda.get_device_capability()[0] >= MIN_CAPABILITY
    trains = on_gpu if cuda else HAS_CPU_EXTENSION
    return backend_module("fused" if name == "fused" or (name == "auto" and trains) else "pyg")


def backend_module(name: str) -> Backend:
    """The module of a resolved backend, fused or pyg: one lookup, which torch.compile can follow."""
    if name == "fused":
        from molgcn.nn import fused

        return fused
    from molgcn.nn import pyg

    return pyg


def check_strategy(strategy: str, backend: str) -> str:
    """`strategy` if the backend has it.

    Raises:
        UserError: for an unknown strategy, or one that PyG does not have.
    """
    check_known(strategy)
    if backend == "pyg" and strategy != "auto":
        raise UserError(f"backend.strategy={strategy} belongs to backend=fused; backend=pyg has only auto.")
    return strategy
