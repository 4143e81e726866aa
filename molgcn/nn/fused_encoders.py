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
    """The modules of an encoder that the operator computes: maps of features and of walks, and a norm of walks."""

    linear: nn.Linear
    walks: nn.Linear | None
    norm: BatchNorm | None


def _encoder_of_atoms(model: MoleculeNet) -> _Encoder | None:
    encoder = model.rwse_encoder
    return _known([model.embed] if encoder is None else [model.embed, encoder, encoder.norm, encoder.lin])


def _known(modules: Sequence[nn.Module | None]) -> _Encoder | None:
    """Return the modules of an encoder, or None if some have hooks or are not those that the network made, or none maps the features."""
    present = [module for module in modules if module is not None]
    linears: list[Any] = [module for module in present if type(module) is nn.Linear]
    norms: list[Any] = [module for module in present if type(module) is BatchNorm]
    known = all(type(module) in (nn.Linear, BatchNorm, WalkEncoder) and not has_hooks(module) for module in present)
    maps_features = modules[0] is not None and len(linears) == 1 + (len(present) > 1)
    return _Encoder(linears[0], linears[1] if len(linears) > 1 else None, norms[0] if norms else None) if known and maps_features else None


def _inputs(known: _Encoder, x: Tensor, walks: Tensor | None, count: Tensor | None, add: bool) -> EncodeInputs | None:
    """Return the operator's arguments for features [R, F] and walks [R, k], added or side by side, or None where PyTorch computes them.

    It does so on a CPU, in other dtypes than float32, for very wide rows, where `x` or `walks` wants a gradient, under transforms of
    torch.func, and for a single row, which it refuses in training.
    """
    walks = walks if known.walks is not None else None  # a batch may have what the network does not read
    learns = torch.is_grad_enabled() and (x.requires_grad or (walks is not None and walks.requires_grad))
    if learns or transformed() or x.shape[0] < 2 or (walks is None and known.walks is not None):
        return None
    weight, bias = own_parameters([known.linear])
    walk_weight, walk_bias = (None, None) if known.walks is None else own_parameters([known.walks])
    of_norm: tuple[Any, Any, Any, Any] = (None, None, None, None)
    numbers = False, 1e-5, 0.1
    if known.norm is not None:
        norm_weight, norm_bias = own_parameters([known.norm])
        of_norm = norm_weight, norm_bias, known.norm.running_mean, known.norm.running_var
        if known.norm.momentum is None or any(tensor is None for tensor in of_norm):
            return None
        numbers = known.norm.training, known.norm.eps, known.norm.momentum
    inputs = EncodeInputs(x, weight, bias, walks, walk_weight, walk_bias, *of_norm, count, add, *numbers)
    return inputs if fits(inputs) else None
