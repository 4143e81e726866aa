"""The arguments of the operator of networks for a model and a batch, on backend=fused."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from molgcn.data.batch import GraphBatch
from molgcn.data.encodings import batch_encodings
from molgcn.errors import UserError
from molgcn.nn import forward
from molgcn.nn.fused_encoders import atom_encoder, bond_encoder
from molgcn.nn.hooks import compute_weights, has_hooks
from molgcn.nn.members import LAYERS, PARTS, Members, members_of, named
from molgcn.nn.network_steps import NetworkOptions, program_of
from molgcn.nn.norms import eps_and_momentum, uneven_norms
from molgcn.nn.options import NO_EXTENSION
from molgcn.nn.replaced import refuse_replaced
from molgcn.ops import HAS_CPU_EXTENSION, Objective
from molgcn.ops.encode import EncodeInputs
from molgcn.ops.graph import Graph
from molgcn.ops.layer_network.call import LayerNetworkCall, Options
from molgcn.ops.layer_network.program import Program
from molgcn.ops.philox import dropout_seed
from molgcn.ops.precision import allowed_precision

if TYPE_CHECKING:
    from molgcn.nn.molecule_net import MoleculeNet


_options = attrgetter(
    "strategy",
    "recompute",
    "dropout",
    "conv",
    "hidden_channels",
    "num_layers",
    "norm",
    "residual",
    "feed_forward",
    "feed_forward_norm",
    "last_activation",
    "outputs",
    "pool",
    "readout",
    "rwse",
    "activation",
)
_eps_and_mode, _momentum = attrgetter("eps", "training"), attrgetter("momentum")


class NetworkOfCall(NamedTuple):
    """What a call takes from the network alone."""

    program: Program
    parameters: list[Any]  # the tensors that :attr:`.program.Program.members` names
    statistics: list[Any]  # the tensors of :attr:`.program.Program.statistics`
    counters: list[Any]  # the tensors of :attr:`.program.Program.counters` in training
    training: bool  # whether it runs in training mode
    recompute: bool  # whether it keeps only the layers' inputs
    is_plain_gcn: bool  # whether kernels made for graph convolutions may run it
    writes: bool  # whether the operator may write the running statistics, which it cannot where they are means over all batches


def layer_call(
    model: MoleculeNet,
    batch: GraphBatch,
    members: Members | None = None,
    head: Sequence[Tensor] = (),
    objective: Objective | None = None,
) -> LayerNetworkCall:
    """Return the operator's arguments for a model, whose members are found if not given, and a batch.

    Raises:
        UserError: for hooks that would never be called, norms in another mode than their model, or norms that differ in eps or momentum.
        ValueError: for batch norm in training over a single atom.
    """
    if batch.x.device.type == "cpu" and not HAS_CPU_EXTENSION:
        raise UserError(NO_EXTENSION)
    members = members or members_of(model, PARTS)
    compute_weights(members.once("hooked", lambda: _hooked_layers(model)))
    x, bonds, code, encoders = _inputs(model, batch, members)
    of_atoms, of_bonds = encoders
    edge_channels = None if bonds is None else bonds.shape[1] if of_bonds is None else of_bonds.out_channels
    network = _network_of(model, members, x.shape[1] if of_atoms is None else of_atoms.out_channels, edge_channels)
    program, parameters = network.program, network.parameters
    if network.training and program.batch_norms and x.shape[0] == 1:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {[1, model.hidden_channels]}")
    if any(program.columns):
        whole = zip(parameters, program.columns, strict=True)
        parameters = [tensor if columns is None else tensor[:, slice(*columns)] for tensor, columns in whole]
    tile_ptr = batch.tile_ptr if network.is_plain_gcn and x.is_cuda else batch.planned_tiles()
    hints = () if tile_ptr is None else (batch.tile_nodes, batch.large_molecules)
    graph = Graph(x, bonds, batch.ptr, batch.rowptr, batch.col, code, tile_ptr, batch.counts, *hints)
    if batch.leaves_merged:
        graph = graph._replace(leaves_merged=True)
    learns = False
    if torch.is_grad_enabled():
        of_encoders = chain.from_iterable(inputs.parameters for inputs in encoders if inputs is not None)
        learns = any(tensor is not None and tensor.requires_grad for tensor in chain(parameters, (x, bonds), head, of_encoders))
    of_call = Options(network.training, allowed_precision(x.device), learns, network.recompute, model.strategy)
    seed = dropout_seed(x.device, program.drops)
    counters = counted(model, batch, network.counters)
    if of_atoms is not None and of_atoms.training:
        assert model.rwse_encoder is not None
        counters = [*counters, model.rwse_encoder.norm.num_batches_tracked]
    counters = counters if network.writes else []
    return LayerNetworkCall(graph, program, parameters, network.statistics, seed, of_call, encoders, head, objective, counters)


def counted(model: MoleculeNet, batch: GraphBatch, counters: list[Any]) -> list[Any]:
    """Return those counters of batches that a batch adds to, which are not those of bonds where it has none."""
    if not counters or batch.col.shape[0] > 0:
        return counters
    without_bonds = {*map(id, (norm.num_batches_tracked for norm in model.edge_norms))}
    return [counter for counter in counters if id(counter) not in without_bonds]


def _network_of(model: MoleculeNet, members: Members, in_channels: int, edge_channels: int | None) -> NetworkOfCall:
    """Return the network's part of a call, which is remembered for each mode as long as members and options are the same."""
    if torch.compiler.is_compiling():
        return _found(model, in_channels, edge_channels)
    norms, over_batches = members.once("norms", lambda: [_with(members, "eps"), _with(members, "momentum")])
    of_norms = [*map(_eps_and_mode, norms)], [*map(_momentum, over_batches)]
    state = in_channels, edge_channels, _options(model), model.settings, of_norms
    known = members.found.get(model.training)
    if known is None or known[0] != state:
        network = _found(model, in_channels, edge_channels)
        if not members.hold(chain(network.parameters, network.statistics, network.counters)):
            return network
        known = members.found[model.training] = deepcopy(state), network
    found: NetworkOfCall = known[1]
    return found


def _with(members: Members, name: str) -> list[nn.Module]:
    """Return the modules that have an attribute which is neither a tensor nor a module."""
    return [module for module in members.modules if name in vars(module)]


def _found(model: MoleculeNet, in_channels: int, edge_channels: int | None) -> NetworkOfCall:
    if model.strategy == "tile" and not model.is_plain_gcn:
        raise UserError(f"backend.strategy=tile cannot compute a network of {model.conv} layers with these options. Use auto.")
    options = options_of(model, in_channels, edge_channels)
    if model.kind.stacked:
        options = options._replace(num_layers=len(model.convs))  # layers may have been added
    norms = named(model, program_of(tuple(options)).norms)
    training = _mode_of(model, norms)
    eps, momentum = eps_and_momentum(norms)
    dropout = model.dropout if training else 0.0
    changed = options._replace(dropout=dropout, eps=eps, momentum=1.0 if momentum is None else momentum, training=training)
    program = program_of(tuple(changed))
    return NetworkOfCall(
        program,
        named(model, program.members, uneven_norms),
        named(model, program.statistics, uneven_norms),
        named(model, program.counters if training else ()),
        training,
        model.recompute and len(program.ends) > 1,  # all values of one layer would be there at the same time again
        model.is_plain_gcn,
        momentum is not None,
    )


def _hooked_layers(model: MoleculeNet) -> list[nn.Module]:
    refuse_replaced(model)
    return [module for part in LAYERS for module in getattr(model, part).modules() if has_hooks(module)]


_Encoders = tuple[EncodeInputs | None, EncodeInputs | None]


def _inputs(model: MoleculeNet, batch: GraphBatch, members: Members) -> tuple[Tensor, Tensor | None, Tensor | None, _Encoders]:
    """Return the rows of the atoms and of the bonds, each bond's index among the rows where these are the distinct ones, and encoders.

    Rows without an encoder are the first states.
    """
    dtype = _dtype_of(model, members)
    rwse, bond_rw = batch_encodings(batch, model.rwse, model.bond_rw)
    num_atoms, num_bonds = (None, None) if batch.counts is None else (batch.counts[1], batch.counts[2])
    of_atoms = atom_encoder(model, batch.x, rwse, num_atoms, members) if dtype == torch.float32 else None
    x = forward.atom_states(model, batch.x, rwse, num_atoms).to(dtype) if of_atoms is None else of_atoms.x
    if model.kind.bonds == "never":
        return x, None, None, (of_atoms, None)
    coded = batch.edge_code is not None and model.bond_rw_encoder is None
    features, count = (batch.edge_table, None) if coded else (batch.edge_attr, num_bonds)
    of_bonds = bond_encoder(model, features, bond_rw, count, members) if dtype == torch.float32 else None
    bonds = forward.bond_states(model, features, bond_rw, batch.x) if of_bonds is None else of_bonds.x
    return x, None if bonds is None else bonds.to(dtype), batch.edge_code if coded else None, (of_atoms, of_bonds)


def _dtype_of(model: MoleculeNet, members: Members) -> torch.dtype:
    """Return the dtype of the first parameter, which is searched once; layers of a package may have none."""
    return members.once("first parameter", lambda: next(model.parameters())).dtype


def options_of(model: MoleculeNet, in_channels: int, edge_channels: int | None) -> NetworkOptions:
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
        settings=_settings(model),
    )


def _settings(model: MoleculeNet) -> tuple[tuple[str, Any], ...]:
    return tuple((name, tuple(value) if isinstance(value, list) else value) for name, value in model.settings.items())


def _mode_of(model: MoleculeNet, norms: Sequence[Any]) -> bool:
    """Return whether the network runs in training mode, which it need not if all batch norms are frozen and there is no dropout.

    Raises:
        UserError: for batch norms in another mode than their model.
    """
    over_batches = [norm.training for norm in norms if isinstance(norm, nn.BatchNorm1d)]
    drops = model.dropout > 0 or model.settings.get("attention_dropout", 0) > 0
    if model.training and not drops and over_batches and not any(over_batches):
        return False
    if any(mode != model.training for mode in over_batches):
        raise UserError(
            "Batch norms are in another mode than their model, but backend=fused runs all in one mode. Call train() or eval() on the model."
        )
    return model.training
