"""The states of atoms and bonds before the first layer on backend=fused, by one operator where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from molgcn.nn.encoders import WalkEncoder
from molgcn.nn.hooks import has_hooks
from molgcn.nn.norms import BatchNorm, take_statistics
from molgcn.ops.encode import Encoded, EncodeInputs, fits
from molgcn.ops.transforms import transformed

if TYPE_CHECKING:
    from molgcn.nn.molecule_net import MoleculeNet


def take_atom_statistics(model: MoleculeNet, inputs: EncodeInputs, encoded: Encoded) -> None:
    """Update the running statistics of the norm that :func:`atom_encoder` has given, if it is in training."""
    if inputs.training:
        assert model.rwse_encoder is not None
        take_statistics([model.rwse_encoder.norm], encoded.statistics[:, None])


def atom_encoder(model: MoleculeNet, x: Tensor, rwse: Tensor | None, count: Tensor | None) -> EncodeInputs | None:
    """Return the arguments of the operator that computes the atoms' first states, or None where PyTorch computes them."""
    encoder = model.rwse_encoder
    modules = [model.embed] if encoder is None else [model.embed, encoder, encoder.norm, encoder.lin]
    scaled = x if model.atom_scale is None else model.atom_scale(x)
    return _inputs(modules, scaled, None if encoder is None else rwse, count, add=False)


def bond_encoder(model: MoleculeNet, edge_attr: Tensor | None, bond_rw: Tensor | None, count: Tensor | None = None) -> EncodeInputs | None:
    """Return the arguments of the operator that computes the states of bonds, of which the first `count` are real.

    Return None where PyTorch computes them.
    """
    if edge_attr is None:
        return None
    encoder = model.bond_rw_encoder
    modules = [model.bond_embed] if encoder is None else [model.bond_embed, encoder]
    scaled = edge_attr if model.bond_scale is None else model.bond_scale(edge_attr)
    return _inputs(modules, scaled, None if encoder is None else bond_rw, count, add=True)


def _inputs(modules: Sequence[nn.Module | None], x: Tensor, walks: Tensor | None, count: Tensor | None, add: bool) -> EncodeInputs | None:
    """Return the operator's arguments for features [R, F] and walks [R, k], added or side by side, or None where PyTorch computes them.

    It does so on a CPU, in other dtypes than float32, for very wide rows, where `x` or `walks` wants a gradient, under transforms of
    torch.func, where modules have hooks or are not those that the network made, and for a single row, which it refuses in training.
    """
    present = [module for module in modules if module is not None]
    linears: list[Any] = [module for module in present if type(module) is nn.Linear]
    norms: list[Any] = [module for module in present if type(module) is BatchNorm]
    known = all(type(module) in (nn.Linear, BatchNorm, WalkEncoder) and not has_hooks(module) for module in present)
    learns = torch.is_grad_enabled() and any(rows is not None and rows.requires_grad for rows in (x, walks))
    if learns or transformed() or x.shape[0] < 2 or not known or len(linears) != (1 if walks is None else 2):
        return None
    inputs = EncodeInputs(x, linears[0].weight, linears[0].bias, num_real=count, add=add)
    if walks is not None:
        inputs = inputs._replace(walks=walks, walk_weight=linears[1].weight, walk_bias=linears[1].bias)
    for norm in norms:
        own = (norm.weight, norm.bias, norm.running_mean, norm.running_var)
        if norm.momentum is None or any(tensor is None for tensor in own):
            return None
        names = ("norm_weight", "norm_bias", "running_mean", "running_var")
        inputs = inputs._replace(**dict(zip(names, own, strict=True)), training=norm.training, eps=norm.eps, momentum=norm.momentum)
    return inputs if fits(inputs) else None
