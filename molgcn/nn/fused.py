"""backend=fused: encoders, all layers, the pooling and the head by this project's operator, for networks whose layers say their steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from molgcn.data.batch import GraphBatch
from molgcn.data.encodings import batch_encodings
from molgcn.errors import UserError
from molgcn.nn import forward
from molgcn.nn.components import apart, of_component
from molgcn.nn.fused_encoders import atom_encoder, bond_encoder, take_atom_statistics
from molgcn.nn.graph_inputs import graph_inputs
from molgcn.nn.hooks import compute_weights
from molgcn.nn.layers.base import NoStepsError
from molgcn.nn.members import Members, members_of
from molgcn.nn.network_steps import NetworkOptions, program_of
from molgcn.nn.norms import eps_and_momentum, uneven_norms
from molgcn.nn.options import NO_EXTENSION
from molgcn.nn.pooling import NORM_CONSTANT
from molgcn.nn.reference import REDUCTIONS
from molgcn.nn.registry import get_kind, layer_names
from molgcn.ops import HAS_CPU_EXTENSION, Objective, head_loss
from molgcn.ops.encode import EncodeInputs
from molgcn.ops.graph import Graph
from molgcn.ops.head_loss import loss_of
from molgcn.ops.layer_network.call import LayerNetworkCall, Options
from molgcn.ops.layer_network.implementation import DIRECT
from molgcn.ops.layer_network.operator import encoded_network
from molgcn.ops.philox import dropout_seed
from molgcn.ops.precision import allowed_precision
from molgcn.ops.running_statistics import copy_statistics

if TYPE_CHECKING:
    from molgcn.nn.layers.base import LayerKind, LayerOptions
    from molgcn.nn.molecule_net import MoleculeNet

name = "fused"
_PARTS = ("convs", "norms", "edge_norms", "feed_forwards")  # the attributes of a model with the operator's parameters
_POOLS = ("mean", "sum", "max")  # the poolings of the operator


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


def conv(kind: LayerKind, options: LayerOptions) -> nn.Module:
    """Return the layer in plain PyTorch. The operator reads its parameters and computes all layers together."""
    return kind.reference(options)


def predictions(model: MoleculeNet, batch: GraphBatch | Any) -> Tensor:
    """Return the predictions [B, T]. The operator computes the head too, if that is linear maps of the pooled states without hooks.

    Raises:
        UserError: for a CPU tensor where the C++ extension was not built, or a strategy that the device does not have.
    """
    if model.outputs:
        return _rows_of_levels(model, batch)
    if model.num_components > 1:
        return model.head(_of_components(model, batch))
    head = _head_of_operator(model, batch.x)
    return model.head(_head_input(model, batch)) if head is None else _computed(model, batch, head)[0]


def loss(model: MoleculeNet, batch: GraphBatch | Any, objective: Objective) -> tuple[Tensor, Tensor]:
    """Return the loss of :func:`predictions`, and float64 [2] with the sum and the number of its terms.

    The operator computes head and loss too where it can; otherwise there is one for both where there is one.
    """
    if model.outputs:
        return loss_of(_rows_of_levels(model, batch), objective, fused=True)
    if model.num_components > 1:
        return _head_loss(model, _of_components(model, batch), objective)
    head = _head_of_operator(model, batch.x)
    if not head or not _fuses_loss(next(model.convs.parameters()), objective):
        return _head_loss(model, _head_input(model, batch), objective)
    value, sums = _computed(model, batch, head, objective)
    return value, sums[0]


def _head_of_operator(model: MoleculeNet, x: Tensor) -> list[nn.Linear] | None:
    """Return the head's linear maps where the operator may take them into its launches, if they map pooled states alone."""
    maps_states, of_device = model.descriptors is None and model.pool in _POOLS, DIRECT.get(x.device.type)
    return _free_head(model, x) if maps_states and of_device is not None and of_device.takes_end else None


def _rows_of_levels(model: MoleculeNet, batch: GraphBatch | Any) -> Tensor:
    """Return the rows of molecules, atoms and bonds, see :func:`molgcn.nn.forward.rows_of_levels`: heads on the operator's states."""
    graph, h = graph_inputs(model, batch), _pooled(model, batch)
    return forward.rows_of_levels(model, graph, h if graph.num_atoms is None else F.pad(h, (0, 0, 0, 1)), REDUCTIONS)


def _of_components(model: MoleculeNet, batch: GraphBatch | Any) -> Tensor:
    """Return the head's input for rows of several molecules: the pooled states of each row's components side by side, and descriptors."""
    batch = _graph_batch(batch)
    if model.encoders:
        encoders = enumerate((model, *model.encoders))
        pooled = torch.cat([_pooled(one, of_component(one, batch, number)) for number, one in encoders], dim=1)
    else:
        pooled = _pooled(model, apart(batch, model.num_components)).reshape(batch.num_graphs, -1)
    return model.with_descriptors(pooled, batch.descriptors)


def _head_input(model: MoleculeNet, batch: GraphBatch | Any) -> Tensor:
    """Return the pooled states and the descriptors."""
    return model.with_descriptors(_pooled(model, batch), getattr(batch, "descriptors", None))


def _pooled(model: MoleculeNet, batch: GraphBatch | Any) -> Tensor:
    """Return the pooled states of the molecules, [B, H] or [B, L H] of all layers; with outputs of atoms or bonds those of the atoms."""
    batch = _graph_batch(batch)
    states, _ = _computed(model, batch)
    if model.outputs:
        return states
    if model.pool == "attention":  # rows of padding count as one more molecule
        atoms = torch.arange(states.shape[0], dtype=batch.ptr.dtype, device=batch.ptr.device)
        molecule = torch.bucketize(atoms, batch.ptr[1:], right=True)
        return REDUCTIONS.pool("attention", states, molecule, batch.num_graphs + 1, model.gate)[: batch.num_graphs]
    return states / NORM_CONSTANT if model.pool == "norm" else states


def _head_loss(model: MoleculeNet, pooled: Tensor, objective: Objective) -> tuple[Tensor, Tensor]:
    """Return the loss of the head's predictions, in one operator where there is one."""
    head = _free_head(model, pooled)
    if head is None or not _fuses_loss(pooled, objective):
        return loss_of(model.head(pooled), objective, fused=True)
    return head_loss(pooled, [linear.weight for linear in head], [linear.bias for linear in head], objective)


def _fuses_loss(x: Tensor, objective: Objective) -> bool:
    """Return whether the operators compute a loss in this dtype."""
    return x.dtype == objective.target.dtype == objective.mean.dtype and not (x.is_cuda and x.dtype != torch.float32)


def _free_head(model: MoleculeNet, x: Tensor) -> list[nn.Linear] | None:
    """Return the head's linear maps, if an operator may compute them: they have no hooks and autocast is off. None otherwise."""
    return None if torch.is_autocast_enabled(x.device.type) else model.linears


def _graph_batch(batch: GraphBatch | Any) -> GraphBatch:
    return batch if isinstance(batch, GraphBatch) else GraphBatch.from_pyg(batch)


def _computed(
    model: MoleculeNet, batch: GraphBatch | Any, head: Sequence[nn.Linear] = (), objective: Objective | None = None
) -> tuple[Tensor, Sequence[Tensor]]:
    """Return the operator's result and what it says of a loss, and update the norms' running statistics.

    Args:
        model: The network.
        batch: The molecules.
        head: Linear maps, with a relu between each two, whose result is returned in place of the pooled states.
        objective: The loss that is returned in place of the head's result.
    """
    batch, layers = _graph_batch(batch), members_of(model, _PARTS)
    call = layer_call(model, batch, layers, head, objective)
    outputs, states = encoded_network(call)
    if call.encoders[0] is not None and states[0] is not None:
        take_atom_statistics(model, call.encoders[0], states[0])
    if call.batch_statistics and call.graph.num_nodes > 0:
        norms, without_bonds = layers.named(model, call.program.batch_norms), call.graph.col.shape[0] == 0
        counts = [norm.num_batches_tracked for norm in norms if not (without_bonds and norm in set(model.edge_norms))]
        copy_statistics(call.statistics, counts, outputs.new_statistics)
    return outputs.pooled, outputs.of_loss


def layer_call(
    model: MoleculeNet,
    batch: GraphBatch,
    layers: Members | None = None,
    head: Sequence[nn.Linear] = (),
    objective: Objective | None = None,
) -> LayerNetworkCall:
    """Return the operator's arguments for a model, whose layers are found if not given, and a batch.

    Raises:
        UserError: for hooks that would never be called, norms in another mode than their model, or norms that differ in eps or momentum.
        ValueError: for batch norm in training over a single atom.
    """
    _check_device(model, batch.x.device)
    layers = layers or members_of(model, _PARTS)
    compute_weights(layers.modules)
    x, bonds, code, encoders = _inputs(model, batch)
    of_atoms, of_bonds = encoders
    edge_channels = None if bonds is None else bonds.shape[1] if of_bonds is None else of_bonds.out_channels
    options = _options(model, x.shape[1] if of_atoms is None else of_atoms.out_channels, edge_channels)
    norms = layers.named(model, program_of(tuple(options)).norms)
    training = _mode_of(model, norms, x.shape[0])
    eps, momentum = eps_and_momentum(norms)
    dropout = model.dropout if training else 0.0
    program = program_of(tuple(options._replace(dropout=dropout, eps=eps, momentum=momentum, training=training)))
    statistics = layers.named(model, program.statistics)
    members = layers.named(model, program.members)
    if type(None) in {*map(type, (*members, *statistics))}:
        raise uneven_norms()
    whole = zip(members, program.columns, strict=True)
    parameters = [tensor if columns is None else tensor[:, slice(*columns)] for tensor, columns in whole]
    tile_ptr = batch.tile_ptr if model.is_plain_gcn and x.is_cuda else batch.planned_tiles()
    graph = Graph(x, bonds, batch.ptr, batch.rowptr, batch.col, code, tile_ptr, batch.counts, leaves_merged=batch.leaves_merged)
    if tile_ptr is not None:
        graph = graph._replace(tile_nodes=batch.tile_nodes, large_molecules=batch.large_molecules)
    of_head = [tensor for linear in head for tensor in (linear.weight, linear.bias)]
    of_encoders = (parameter for inputs in encoders if inputs is not None for parameter in inputs.parameters)
    variables = (x, bonds, *parameters, *of_head, *of_encoders)
    learns = torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in variables)
    recompute = model.recompute and len(program.ends) > 1  # all values of one layer would be there at the same time again
    of_call = Options(training, allowed_precision(x.device), learns, recompute, model.strategy)
    seed = dropout_seed(x.device, program.drops)
    return LayerNetworkCall(graph, program, parameters, statistics, seed, of_call, encoders, of_head, objective)


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


def _mode_of(model: MoleculeNet, norms: Sequence[Any], num_atoms: int) -> bool:
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


def _check_device(model: MoleculeNet, device: torch.device) -> None:
    if model.strategy == "tile" and not model.is_plain_gcn:
        raise UserError(f"backend.strategy=tile cannot compute a network of {model.conv} layers with these options. Use auto.")
    if device.type != "cpu":
        return
    if not HAS_CPU_EXTENSION:
        raise UserError(NO_EXTENSION)
    if model.strategy not in ("auto", "tile"):
        raise UserError(f"backend.strategy={model.strategy} is for CUDA. On the CPU use auto or tile.")
