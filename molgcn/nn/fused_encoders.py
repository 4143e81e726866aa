"""The states of atoms and bonds before the first layer on backend=fused, by one operator where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from molgcn.nn.encoders import WalkEncoder
from molgcn.nn.hooks import has_hooks
from molgcn.nn.members import PARTS, Members, members_of, own_parameters
from molgcn.nn.norms import BatchNorm, take_statistics
from molgcn.ops.encode import EncodeInputs, fits
from molgcn.ops.transforms import transformed

if TYPE_CHECKING:
    from molgcn.nn.molecule_net import MoleculeNet


def take_atom_statistics(model: MoleculeNet, inputs: EncodeInputs, statistics: Tensor) -> None:
    """Update the running statistics of the norm that :func:`atom_encoder` has given, if it is in training, given the new ones [2, k]."""
    if inputs.training:
        assert model.rwse_encoder is not None
        take_statistics([model.rwse_encoder.norm], statistics[:, None])


def atom_encoder(
    model: MoleculeNet, x: Tensor, rwse: Tensor | None, count: Tensor | None, members: Members | None = None
) -> EncodeInputs | None:
    """Return the arguments of the operator that computes the atoms' first states, or None where PyTorch computes them."""
    known = (members or members_of(model, PARTS)).once("encoder of atoms", lambda: _encoder_of_atoms(model))
    return None if known is None else _inputs(known, x if model.atom_scale is None else model.atom_scale(x), rwse, count, add=False)


def bond_encoder(
    model: MoleculeNet, edge_attr: Tensor | None, bond_rw: Tensor | None, count: Tensor | None = None, members: Members | None = None
) -> EncodeInputs | None:
    """Return the arguments of the operator that computes the states of bonds, of which the first `count` are real.

    Return None where PyTorch computes them.
    """
    known = (members or members_of(model, PARTS)).once("encoder of bonds", lambda: _known([model.bond_embed, model.bond_rw_encoder]))
    if edge_attr is None or known is None:
        return None
    return _inputs(known, edge_attr if model.bond_scale is None else model.bond_scale(edge_attr), bond_rw, count, add=True)


class _Encoder(NamedTuple):
    """What is known of an encoder that the operator computes, until one of its modules or tensors is replaced."""

    linear: tuple[Tensor, Tensor | None]  # weight and bias of the features' map
    walks: tuple[Tensor | None, Tensor | None]  # weight and bias of the walks' map, or None twice
    # weight, bias, running mean and variance of the norm of the walks, or None four times
    of_norm: tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None]
    norm: BatchNorm | None  # that norm, or None


def _encoder_of_atoms(model: MoleculeNet) -> _Encoder | None:
    encoder = model.rwse_encoder
    return _known([model.embed] if encoder is None else [model.embed, encoder, encoder.norm, encoder.lin])


def _known(modules: Sequence[nn.Module | None]) -> _Encoder | None:
    """Return an encoder, or None if modules have hooks or are not those that the network made, or none maps the features."""
    present = [module for module in modules if module is not None]
    linears = [module for module in present if type(module) is nn.Linear]
    known = all(type(module) in (nn.Linear, BatchNorm, WalkEncoder) and not has_hooks(module) for module in present)
    if not known or modules[0] is None or len(linears) != 1 + (len(present) > 1):
        return None
    weight, bias, walk_weight, walk_bias = (*own_parameters(linears), None, None)[:4]
    norm = next((module for module in present if isinstance(module, BatchNorm)), None)
    of_norm = (None, None, None, None) if norm is None else (*own_parameters([norm]), norm.running_mean, norm.running_var)
    if weight is None or (len(linears) > 1 and walk_weight is None) or (norm is not None and any(tensor is None for tensor in of_norm)):
        return None
    return _Encoder((weight, bias), (walk_weight, walk_bias), of_norm, norm)


def _inputs(known: _Encoder, x: Tensor, walks: Tensor | None, count: Tensor | None, add: bool) -> EncodeInputs | None:
    """Return the operator's arguments for features [R, F] and walks [R, k], added or side by side, or None where PyTorch computes them.

    It does so on a CPU, in other dtypes than float32, for very wide rows, where `x` or `walks` wants a gradient, under transforms of
    torch.func, and for a single row, which it refuses in training.
    """
    has_walks, norm = known.walks[0] is not None, known.norm
    walks = walks if has_walks else None  # a batch may have what the network does not read
    learns = torch.is_grad_enabled() and (x.requires_grad or (walks is not None and walks.requires_grad))
    if learns or transformed() or x.shape[0] < 2 or (walks is None and has_walks):
        return None
    if norm is not None and norm.momentum is None:
        return None
    numbers: tuple[Any, ...] = (False, 1e-5, 0.1) if norm is None else (norm.training, norm.eps, norm.momentum)
    inputs = EncodeInputs(x, *known.linear, walks, *known.walks, *known.of_norm, count, add, *numbers)
    return inputs if fits(inputs) else None
