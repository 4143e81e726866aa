"""The backends a model can run on: a closed table of names."""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from molgcn.config.strategies import STRATEGIES
from molgcn.cuda_runtime.launch import MIN_CAPABILITY
from molgcn.errors import UserError
from molgcn.nn.options import NO_EXTENSION
from molgcn.ops import HAS_CPU_EXTENSION
from molgcn.ops.head_loss import Objective

if TYPE_CHECKING:
    from molgcn.nn.layers.base import LayerKind, LayerOptions
    from molgcn.nn.molecule_net import MoleculeNet

log = logging.getLogger(__name__)

BACKENDS = ("auto", "fused", "pyg", "reference")


class Backend(Protocol):
    """The implementation that a :class:`molgcn.nn.MoleculeNet` computes with: a module that has these names."""

    name: str

    def conv(self, kind: LayerKind, options: LayerOptions) -> nn.Module:
        """Return one layer, with the state dict of `kind.reference`."""
        ...

    def predictions(self, model: MoleculeNet, batch: Any) -> Tensor:
        """Return the predictions [B, T]: all layers, the pooling and the head."""
        ...

    def loss(self, model: MoleculeNet, batch: Any, objective: Objective) -> tuple[Tensor, Tensor]:
        """Return the mean loss of the predictions, and float64 [2] with the sum and the number of its terms."""
        ...


def resolve_backend(name: str, why_not: str | None = None) -> Backend:
    """Return the backend called `name`, or for "auto" the best that this machine has for a network.

    "auto" is fused where this machine can train the network with it, reference where fused has no operators for the network, and pyg
    otherwise.

    Args:
        name: "auto", "fused", "pyg" or "reference".
        why_not: reason that fused has no operators for the network, see :func:`why_not_fused`; None where it has them.
    """
    if name not in BACKENDS:
        raise UserError(f"backend={name} is unknown. Expected one of {', '.join(BACKENDS)}.")
    if name == "fused" and why_not is not None:
        raise UserError(f"backend=fused has no operators for this network: {why_not}. Use backend=reference or backend=pyg.")
    if name == "auto" and why_not is not None:
        _say_once(f"backend=auto takes reference, since backend=fused has no operators for this network: {why_not}.")
        return backend_module("reference")
    if name in ("pyg", "reference"):
        return backend_module(name)
    if name == "fused":
        if not (HAS_CPU_EXTENSION or torch.cuda.is_available()):
            raise UserError(NO_EXTENSION)
        return backend_module("fused")
    lack = _lack_of_this_machine()
    if lack is not None:
        _say_once(f"backend=auto takes pyg, since {lack}.")
    return backend_module("fused" if lack is None else "pyg")


def _lack_of_this_machine() -> str | None:
    """Return the reason that backend=fused cannot train a network here; None where it can."""
    if not torch.cuda.is_available():
        return None if HAS_CPU_EXTENSION else "molgcn has no C++ extension for this machine"
    if torch.cuda.get_device_capability()[0] < MIN_CAPABILITY:
        return f"the CUDA kernels need a GPU of compute capability {MIN_CAPABILITY}.0 (Ampere) or later"
    return None


@cache
def _say_once(line: str) -> None:
    log.info(line)


def why_not_fused(model: MoleculeNet) -> str | None:
    """Return the reason that backend=fused has no operators for a network with these options; None where it has them."""
    from molgcn.nn import fused

    return fused.why_not(model)


def backend_module(name: str) -> Backend:
    """Return the module of backend "fused", "pyg" or "reference". It is a plain import, which torch.compile can trace."""
    # Not `from molgcn.nn import`, for which Python would look for the name in the package at every call.
    if name == "fused":
        import molgcn.nn.fused as fused

        return fused
    if name == "reference":
        import molgcn.nn.reference as reference

        return reference
    import molgcn.nn.pyg as pyg

    return pyg


def check_strategy(strategy: str, backend: str) -> str:
    """Return a strategy after checking that it is known and that the backend has it."""
    if strategy not in STRATEGIES:
        raise UserError(f"backend.strategy={strategy} is unknown. Expected one of {', '.join(STRATEGIES)}.")
    if backend != "fused" and strategy != "auto":
        raise UserError(f"backend.strategy={strategy} belongs to backend=fused; backend={backend} has only auto.")
    return strategy


def check_recompute(recompute: bool, model: MoleculeNet) -> bool:
    """Return `recompute`, after checking that the model's backend can compute rows again."""
    if recompute and model.backend.name != "fused":
        raise UserError(
            f"backend.recompute=true is for backend=fused, and backend={model.backend.name} does not have it. Use backend.recompute=false."
        )
    return recompute
