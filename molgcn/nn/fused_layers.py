"""Networks of backend=fused that `molgcn::layer_network` computes: those whose layers say their steps."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from molgcn.data.batch import GraphBatch
from molgcn.data.encodings import batch_encodings
from molgcn.errors import UserError
from molgcn.nn import forward
from molgcn.nn.fused_encoders import atom_encoder, bond_encoder, take_atom_statistics
from molgcn.nn.layers.base import NoStepsError
from molgcn.nn.members import Members, members_of
from molgcn.nn.network_steps import NetworkOptions, program_of
from molgcn.nn.norms import BatchNorm
from molgcn.nn.pooling import NORM_CONSTANT
from molgcn.nn.reference import REDUCTIONS
from molgcn.nn.registry import get_kind, layer_names
from molgcn.ops.encode import EncodeInputs
from molgcn.ops.graph import Graph
from molgcn.ops.layer_network.call import LayerNetworkCall, Options
from molgcn.ops.layer_network.operator import encoded_network
from molgcn.ops.precision import allowed_precision
from molgcn.ops.running_statistics import copy_statistics

if TYPE_CHECKING:
    from molgcn.nn.molecule_net import MoleculeNet

PARTS = ("convs", "norms", "edge_norms", "feed_forwards")  # the attributes of a model with the operator's parameters


def why_not(model: MoleculeNet) -> str | None:
    """Return the reason that the operator cannot compute a network with these options; None where it can."""
    if model.kind.steps is None:
        names = [name for name in layer_names() if get_kind(name).steps is not None]
        return f"its layers are {model.conv}, not {', '.join(names[:-1])} or {names[-1]}"
    width = model.hidden_channels
    try:
        program_of(_options(model, width, width if model.kind.bonds == "always" else None))
    except NoStepsError as error:
        return str(error)
    return None


def pooled(model: MoleculeNet, batch: GraphBatch, head: Sequence[nn.Linear] = ()) -> Tensor:
    """Return the pooled states of the molecules, [B, H] or [B, L H] of all layers, and update the norms' running statistics.

    With outputs of atoms or bonds these are the states of the atoms, [N, H] or [N, L H].

    Args:
        model: The network.
        batch: The molecules.
        head: Linear maps, with a relu between each two, whose result is returned instead. They need a mean, sum or max as the pooling.

    Raises:
        UserError: for norms in another mode than their model, or norms that differ from each other in eps or momentum.
        ValueError: for batch norm in training over a single atom.
    """
    layers = members_of(model, PARTS)
    call = layer_call(model, batch, layers, head)
    outputs, states = encoded_network(call)
    if call.encoders[0] is not None and states[0] is not None:
        take_atom_statistics(model, call.encoders[0], states[0])
    if call.batch_statistics and call.graph.num_nodes > 0:
        norms, without_bonds = layers.named(model, call.program.batch_norms), call.graph.col.shape[0] == 0
        counts = [norm.num_batches_tracked for norm in norms if not (without_bonds and norm in set(model.edge_norms))]
        copy_statistics(call.statistics, counts, outputs.new_statistics)
    if model.outputs:
        return outputs.pooled
    if model.pool == "attention":
        return _attention(model, outputs.pooled, batch.ptr)
    return outputs.pooled / NORM_CONSTANT if model.pool == "norm" else outputs.pooled


def _attention(model: MoleculeNet, states: Tensor, ptr: Tensor) -> Tensor:
    """Return the states of the atoms [N, H] pooled by attention, [B, H]. Rows of padding count as one more molecule."""
    atoms = torch.arange(states.shape[0], dtype=ptr.dtype, device=ptr.device)
    molecule, count = torch.bucketize(atoms, ptr[1:], right=True), ptr.shape[0] - 1
    return REDUCTIONS.pool("attention", states, molecule, count + 1, model.gate)[:count]


def layer_call(model: MoleculeNet, batch: GraphBatch, layers: Members | None = None, head: Sequence[nn.Linear] = ()) -> LayerNetworkCall:
    """Return the operator's arguments for a model, whose layers are found if not given, and a batch; :func:`pooled` lists the errors."""
    layers = layers or members_of(model, PARTS)
    x, bonds, code, encoders = _inputs(model, batch)
    of_atoms, of_bonds = encoders
    edge_channels = None if bonds is None else bonds.shape[1] if of_bonds is None else of_bonds.out_channels
    options = _options(model, x.shape[1] if of_atoms is None else of_atoms.out_channels, edge_channels)
    norms = layers.named(model, program_of(options).norms)
    training = mode_of(model, norms, x.shape[0])
    dropout = model.dropout if training else 0.0
    eps, momentum = _eps_and_momentum(norms)
    program = program_of(options._replace(dropout=dropout, eps=eps, momentum=momentum, training=training))
    statistics = layers.named(model, program.statistics)
    members = layers.named(model, program.members)
    if type(None) in {*map(type, (*members, *statistics))}:
        raise _uneven_norms()
    whole = zip(members, program.columns, strict=True)
    parameters = [tensor if columns is None else tensor[:, slice(*columns)] for tensor, columns in whole]
    seed = torch.empty(1, dtype=torch.int64, device=x.device)  # never read
    if program.drops:  # drawn on the device, so that a captured step draws anew on every replay
        seed = torch.randint(-(2**63), 2**63 - 1, (1,), device=x.device)
    tile_ptr = batch.planned_tiles()
    graph = Graph(x, bonds, batch.ptr, batch.rowptr, batch.col, code, tile_ptr)
    if tile_ptr is not None:
        graph = graph._replace(tile_nodes=batch.tile_nodes, large_molecules=batch.large_molecules)
    of_call = Options(training, allowed_precision(x.device), False, model.recompute)
    of_head = [tensor for linear in head for tensor in (linear.weight, linear.bias)]
    call = LayerNetworkCall(graph, program, parameters, statistics, seed, of_call, encoders, of_head)
    learns = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in (x, bonds, *call.learnt))
    return call._replace(options=of_call._replace(save_for_backward=learns))


_Encoders = tuple[EncodeInputs | None, EncodeInputs | None]


def _inputs(model: MoleculeNet, batch: GraphBatch) -> tuple[Tensor, Tensor | None, Tensor | None, _Encoders]:
    """Return the rows of the atoms and of the bonds, each bond's index among the rows where these are the distinct ones, and encoders.

    Rows without an encoder are the first states.
    """
    dtype = next(model.convs.parameters()).dtype
    rwse, bond_rw = batch_encodings(batch, model.rwse, model.bond_rw)
    num_atoms, num_bonds = (None, None) if batch.counts is None else (batch.counts[1], batch.counts[2])
    of_atoms = atom_encoder(model, batch.x, rwse, num_atoms) if dtype == torch.float32 else None
    x = forward.atom_states(model, batch.x, rwse, num_atoms).to(dtype) if of_atoms is None else of_atoms.x
    if model.kind.bonds == "never":
        return x, None, None, (of_atoms, None)
    coded = batch.edge_code is not None and model.bond_rw_encoder is None
    features, count = (batch.edge_table, None) if coded else (batch.edge_attr, num_bonds)
    of_bonds = bond_encoder(model, features, bond_rw, count) if dtype == torch.float32 else None
    bonds = forward.bond_states(model, features, bond_rw, batch.x) if of_bonds is None else of_bonds.x
    return x, None if bonds is None else bonds.to(dtype), batch.edge_code if coded else None, (of_atoms, of_bonds)


def _options(model: MoleculeNet, in_channels: int, edge_channels: int | None) -> NetworkOptions:
    """Return the options that a model's steps depend on in evaluation, with norms as PyTorch makes them."""
    return NetworkOptions(
        model.conv,
        in_channels,
        model.hidden_channels,
        model.num_layers,
        edge_channels,
        model.norm,
        model.residual,
        model.feed_forward,
        model.feed_forward_norm,
        model.last_activation,
        pool="none" if model.outputs else {"norm": "sum", "attention": "none"}.get(model.pool, model.pool),
        readout=model.readout,
        activation=model.activation,
        settings=tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in model.settings.items()),
    )


def mode_of(model: MoleculeNet, norms: Sequence[Any], num_atoms: int) -> bool:
    """Return whether the network runs in training mode, which it need not if all batch norms are frozen and there is no dropout.

    Raises:
        UserError: for batch norms in another mode than their model.
        ValueError: for batch norm in training over a single atom.
    """
    over_batches = [norm.training for norm in norms if isinstance(norm, nn.BatchNorm1d)]
    drops = model.dropout > 0 or model.settings.get("attention_dropout", 0) > 0
    if model.training and not drops and over_batches and not any(over_batches):
        return False
    if any(mode != model.training for mode in over_batches):
        raise UserError(
            "Batch norms are in another mode than their model, but backend=fused runs all in one mode. Call train() or eval() on the model."
        )
    if model.training and over_batches and num_atoms == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {[1, model.hidden_channels]}")
    return model.training


def _uneven_norms() -> UserError:
    return UserError(
        "backend=fused runs all layers as one operator. Each norm needs a weight and a bias, each batch norm running statistics, and "
        "all norms the same eps and momentum. Use backend=reference for other networks."
    )


def _eps_and_momentum(norms: list[Any]) -> tuple[float, float]:
    """Return the eps of all norms and the momentum of all batch norms."""
    eps = {*map(attrgetter("eps"), norms)}
    momenta: set[Any] = {norm.momentum for norm in norms if isinstance(norm, BatchNorm)}
    if len(eps) > 1 or len(momenta) > 1 or None in momenta:
        raise _uneven_norms()
    return float(next(iter(eps), 1e-5)), float(next(iter(momenta), 0.1))
