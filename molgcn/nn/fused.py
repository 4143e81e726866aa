"""backend=fused: encoders, all layers, the pooling and the head by this project's operator, for networks whose layers say their steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from molgcn.data.batch import GraphBatch
from molgcn.nn import forward
from molgcn.nn.components import apart, of_component
from molgcn.nn.fused_call import counted, layer_call, options_of
from molgcn.nn.fused_encoders import take_atom_statistics
from molgcn.nn.graph_inputs import graph_inputs
from molgcn.nn.layers.base import NoStepsError
from molgcn.nn.members import PARTS, Members, members_of, named, own_parameters
from molgcn.nn.network_steps import program_of
from molgcn.nn.norms import mean_over_batches
from molgcn.nn.pooling import NORM_CONSTANT
from molgcn.nn.reference import REDUCTIONS
from molgcn.nn.registry import get_kind, layer_names
from molgcn.ops import Objective, head_loss
from molgcn.ops.head_loss import loss_of
from molgcn.ops.layer_network.implementation import DIRECT
from molgcn.ops.layer_network.operator import encoded_network
from molgcn.ops.running_statistics import copy_statistics

if TYPE_CHECKING:
    from molgcn.nn.layers.base import LayerKind, LayerOptions
    from molgcn.nn.molecule_net import MoleculeNet

name = "fused"
_POOLS = ("mean", "sum", "max")  # the poolings of the operator


def why_not(model: MoleculeNet) -> str | None:
    """Return the reason that the operator cannot compute a network with these options; None where it can."""
    if model.kind.steps is None:
        names = [name for name in layer_names() if get_kind(name).steps is not None]
        return f"its layers are {model.conv}, not {', '.join(names[:-1])} or {names[-1]}"
    width = model.hidden_channels
    try:
        program_of(options_of(model, width, width if model.kind.bonds == "always" else None))
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
    members = members_of(model, PARTS)
    head = _head_of_operator(model, batch.x, members)
    return model.head(_head_input(model, batch)) if head is None else _computed(model, batch, head, members=members)[0]


def loss(model: MoleculeNet, batch: GraphBatch | Any, objective: Objective) -> tuple[Tensor, Tensor]:
    """Return the loss of :func:`predictions`, and float64 [2] with the sum and the number of its terms.

    The operator computes head and loss too where it can; otherwise there is one for both where there is one.
    """
    if model.outputs:
        return loss_of(_rows_of_levels(model, batch), objective, fused=True)
    if model.num_components > 1:
        return _head_loss(model, _of_components(model, batch), objective)
    head = _head_of_operator(model, batch.x, members_of(model, PARTS))
    if not head or not _fuses_loss(head[0], objective):
        return _head_loss(model, _head_input(model, batch), objective)
    value, sums = _computed(model, batch, head, objective)
    return value, sums[0]


def _head_of_operator(model: MoleculeNet, x: Tensor, members: Members) -> list[Tensor] | None:
    """Return :func:`_free_head` where the operator may take it into its launches, if it maps pooled states alone."""
    maps_states, of_device = model.descriptors is None and model.pool in _POOLS, DIRECT.get(x.device.type)
    return _free_head(model, x, members) if maps_states and of_device is not None and of_device.takes_end else None


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
    head = _free_head(model, pooled, members_of(model, PARTS))
    if head is None or not _fuses_loss(pooled, objective):
        return loss_of(model.head(pooled), objective, fused=True)
    return head_loss(pooled, head[::2], head[1::2], objective)


def _fuses_loss(x: Tensor, objective: Objective) -> bool:
    """Return whether the operators compute a loss in this dtype."""
    return x.dtype == objective.target.dtype == objective.mean.dtype and not (x.is_cuda and x.dtype != torch.float32)


def _free_head(model: MoleculeNet, x: Tensor, members: Members) -> list[Tensor] | None:
    """Return weight and bias of the head's linear maps, if an operator may compute them: they have no hooks and autocast is off."""
    return None if torch.is_autocast_enabled(x.device.type) else members.once("head", lambda: _found_head(model))


def _found_head(model: MoleculeNet) -> list[Tensor] | None:
    linears = model.linears
    found = None if linears is None else own_parameters(linears)
    return None if found is None or type(None) in map(type, found) else found


def _graph_batch(batch: GraphBatch | Any) -> GraphBatch:
    return batch if isinstance(batch, GraphBatch) else GraphBatch.from_pyg(batch)


def _computed(
    model: MoleculeNet,
    batch: GraphBatch | Any,
    head: Sequence[Tensor] = (),
    objective: Objective | None = None,
    members: Members | None = None,
) -> tuple[Tensor, Sequence[Tensor]]:
    """Return the operator's result and what it says of a loss, and update the norms' running statistics.

    Args:
        model: The network.
        batch: The molecules.
        head: Weight and bias of linear maps, with a relu between each two, whose result is returned in place of the pooled states.
        objective: The loss that is returned in place of the head's result.
        members: The network's members, which are found if not given.
    """
    batch, members = _graph_batch(batch), members or members_of(model, PARTS)
    call = layer_call(model, batch, members, head, objective)
    outputs, (of_atoms, _) = encoded_network(call)
    counters, encoder = call.counters, call.encoders[0]
    if encoder is not None and encoder.training:
        counters = counters[:-1]
        if of_atoms is not None:
            take_atom_statistics(model, encoder, of_atoms)
    if (statistics := outputs.new_statistics).shape[1] > 0 and call.graph.num_nodes > 0:
        names = call.program.batch_norms  # which depend on options too
        norms: list[Any] = members.once(names, lambda: named(model, names))
        if norms[0].momentum is None:
            statistics = mean_over_batches(norms, call.statistics, statistics)
            counters = counted(model, batch, [norm.num_batches_tracked for norm in norms])
        copy_statistics(call.statistics, counters, statistics)
    return outputs.pooled, outputs.of_loss
