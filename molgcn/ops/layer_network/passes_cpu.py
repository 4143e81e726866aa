"""`molgcn::layer_network` on the CPU, by the C++ extension `molgcn._cpu`. Import this module to register it."""

from __future__ import annotations

import math
import struct
from array import array
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import chain
from typing import Any, NamedTuple

import torch
from torch import Tensor

import molgcn._cpu as _cpu
from molgcn.errors import UserError
from molgcn.ops import gcn_cpu
from molgcn.ops.expect import PLAIN, aligned
from molgcn.ops.gcn_network import GcnCall
from molgcn.ops.layer_network.backward import Backward, backward_of
from molgcn.ops.layer_network.call import LayerNetworkCall
from molgcn.ops.layer_network.check import check, check_backward
from molgcn.ops.layer_network.implementation import (
    DIRECT,
    Direct,
    Gradients,
    Implementation,
    Kept,
    Outputs,
    Passes,
    States,
    register_saved_numbers,
)
from molgcn.ops.layer_network.instruction_builder import Builder
from molgcn.ops.layer_network.instructions import Keys
from molgcn.ops.layer_network.operator import empty_gradients
from molgcn.ops.layer_network.program import POOLS, Program
from molgcn.ops.layer_network.steps import Attend, Finish
from molgcn.ops.layer_network.tile_memory import Columns, Home, Memory, TileProgram, lay_out_tiles, loaded_values
from molgcn.ops.reused_memory import reused_empty

_ALIGNMENT = 64  # of rows that tiles use where they are, in bytes; PyTorch's own memory has it
_PASS = {torch.float32: _cpu.layer_pass_float32, torch.float64: _cpu.layer_pass_float64}


class Kind(NamedTuple):
    """The properties of a call that its instructions depend on.

    Attributes:
        program: The network.
        batch_statistics: Whether batch norms use the statistics of the batch.
        coded: Whether the graph has codes of bonds.
        save: Whether values are saved for a backward pass.
    """

    program: Program
    batch_statistics: bool
    coded: bool
    save: bool

    @staticmethod
    def of(call: LayerNetworkCall) -> Kind:
        """Return the kind of a call."""
        coded = call.graph.code is not None and call.program.edge_channels is not None
        return Kind(call.program, call.batch_statistics, coded, call.options.save_for_backward)


class CpuPass(NamedTuple):
    """A pass in the form that C++ reads.

    Attributes:
        numbers: The numbers that `read_pass` in `cpu/layer_network.cpp` reads.
        memory: The rows that the pass reads or writes outside tiles.
        columns: The number of columns of each :class:`Home`.
    """

    numbers: array[int]
    memory: tuple[Memory, ...]
    columns: Mapping[Home, Columns]


def saved_numbers(call: LayerNetworkCall) -> int:
    """Return how many numbers forward keeps: the mean and 1 / standard deviation of batch norms, and the values that backward loads."""
    if (gcn := GcnCall.of(call)) is not None:
        return gcn_cpu.saved_numbers(gcn)
    if not call.options.save_for_backward:
        return _moments(call)
    return _moments(call) + _forward_pass(Kind.of(call)).columns[Home.SAVED].numbers(_rows(call))


def _rows(call: LayerNetworkCall) -> tuple[int, int, int]:
    """Return the numbers of atoms, of rows of bonds and of edges."""
    return call.graph.num_nodes, call.graph.num_bond_rows, call.graph.col.shape[0]


def _moments(call: LayerNetworkCall) -> int:
    """Return how many numbers the moments take, with zeros behind them so that aligned rows follow."""
    line = _ALIGNMENT // call.graph.x.element_size()
    return -(-_num_moments(call) // line) * line


def _num_moments(call: LayerNetworkCall) -> int:
    return 2 * len(call.program.batch_norms) * call.program.hidden_channels if call.batch_statistics else 0


@cache
def _forward_pass(kind: Kind) -> CpuPass:
    keys, builder = _builder(kind)
    segments = builder.forward()
    return _laid_out(kind, builder, lay_out_tiles(segments, keys, _saved(kind) if kind.save else (), {}))


@cache
def _backward_pass(kind: Kind, grad_x: bool, grad_bonds: bool) -> CpuPass:
    keys, builder, backward = _backward_builder(kind, grad_x, grad_bonds)
    numbers = ((backward.of_x, Home.GRAD_X), (backward.of_bonds, Home.GRAD_BONDS))
    outputs = {keys.gradient(number): home for number, home in numbers if number is not None}
    return _laid_out(kind, builder, lay_out_tiles(builder.backward(backward), keys, _saved(kind), outputs), backward=True)


@cache
def _saved(kind: Kind) -> tuple[int, ...]:
    """Return the values that backward loads, whatever gradients are wanted."""
    keys, builder, backward = _backward_builder(kind, grad_x=True, grad_bonds=True)
    return loaded_values(builder.backward(backward), keys)


def _builder(kind: Kind, gradients: tuple[int, ...] = ()) -> tuple[Keys, Builder]:
    keys = Keys(kind.program, gradients)
    return keys, Builder(kind.program, keys, coded=kind.coded, batch_statistics=kind.batch_statistics)


def _backward_builder(kind: Kind, grad_x: bool, grad_bonds: bool) -> tuple[Keys, Builder, Backward]:
    norms = kind.program.batch_norms if kind.batch_statistics else ()
    backward = backward_of(kind.program, grad_x, grad_bonds, batch_norms=norms)
    return *_builder(kind, backward.gradients), backward


def _laid_out(kind: Kind, builder: Builder, tiles: TileProgram, *, backward: bool = False) -> CpuPass:
    """Return the pass in the form that C++ reads."""
    program, ends = kind.program, [0]
    for segment in tiles.segments:
        ends.append(ends[-1] + len(segment.instructions))
    segments = zip(ends[:-1], ends[1:], (each.norm for each in tiles.segments), (int(each.table) for each in tiles.segments), strict=True)
    instructions = (each for segment in tiles.segments for each in segment.instructions)
    outputs = (Home.GRAD_X, Home.GRAD_BONDS) if backward else (Home.SAVED,)
    memory = ((each.rows, each.width, each.stride, int(each.home in outputs)) for each in tiles.memory)
    number = {name: index for index, name in enumerate(program.parameters)}
    of_batch = {name: index for index, name in enumerate(program.batch_norms)}
    of_edges = {step.norm for step in program.steps if isinstance(step, Finish) and program.values[step.source].rows == "edges"}
    norms = (
        (int(how == "layer"), number[f"{name}.weight"], number[f"{name}.bias"], of_batch.get(name, -1), int(name in of_edges))
        for name, how in program.norms.items()
    )
    shapes = (shape if len(shape) == 2 else (1, math.prod(shape)) for shape in program.parameters.values())
    attends = [_attention(step, number) for step in program.steps if isinstance(step, Attend)]
    lists = [_flat(rows) for rows in (segments, instructions, tiles.buffers, memory, norms, shapes, [builder.table_widths], attends)]
    counts = (
        len(tiles.segments),
        len(tiles.buffers),
        len(tiles.memory),
        len(program.norms),
        len(program.parameters),
        len(builder.table_widths),
        len(attends),
    )
    numbers = [*counts, *tiles.buffer_columns[:2], program.hidden_channels, int(backward), POOLS.index(program.pool), *chain(*lists)]
    return CpuPass(array("i", numbers), tiles.memory, tiles.columns)


def _attention(step: Attend, number: Mapping[str, int]) -> tuple[int, ...]:
    """Return the numbers of `AttendOptions` in `cpu/layer_network.hpp`."""
    vectors = (-1 if name is None else number[name] for name in (step.att, step.att_target, step.att_bonds))
    return (
        step.heads,
        int(step.concat),
        *vectors,
        -1 if step.dropout is None else step.dropout,
        *array("i", struct.pack("dd", step.slope, step.rate)),
    )


def _flat(rows: Iterable[Iterable[int]]) -> list[int]:
    return [int(number) for row in rows for number in row]


def _forward(call: LayerNetworkCall) -> tuple[Outputs, States]:
    _refuse_what_is_for_cuda(call)
    check(call)
    if (gcn := GcnCall.of(call)) is not None:
        return gcn_cpu.forward(gcn), _NO_STATES
    call = _contiguous(call)
    x, hidden = call.graph.x, call.program.hidden_channels
    saved, pooled = reused_empty(saved_numbers(call), x.dtype), x.new_empty(call.num_pooled, call.program.pooled_channels)
    if call.program.pool == "none":  # rows of padding
        pooled.zero_()
    saved[_num_moments(call) : _moments(call)] = 0
    if call.options.save_for_backward:
        saved[saved.shape[0] - _forward_pass(Kind.of(call)).columns[Home.SAVED].slack :] = 0
    statistics = x.new_empty(2, len(call.program.batch_norms) if call.batch_statistics else 0, hidden)
    _run(_forward_pass(Kind.of(call)), call, pooled, saved, new_statistics=statistics)
    return Outputs(pooled, statistics, saved if call.options.save_for_backward else saved.new_empty(0)), _NO_STATES


def _backward(call: LayerNetworkCall, kept: Kept, grad_pooled: Tensor, grad_x: bool, grad_bonds: bool) -> Gradients:
    _refuse_what_is_for_cuda(call)
    if (gcn := GcnCall.of(call)) is not None:
        check_backward(grad_pooled, kept.saved, gcn_cpu.saved_numbers(gcn), call)
        of_x, found = gcn_cpu.backward(gcn, grad_pooled, kept.saved, grad_x)
        return of_x, of_x.new_empty(0, 0), found.tensors
    call = _contiguous(call)
    check_backward(grad_pooled, kept.saved, saved_numbers(call), call)
    grad_bonds = grad_bonds and call.program.edge_channels is not None
    gradients = empty_gradients(call, grad_x, grad_bonds)
    saved, grad_pooled = aligned(kept.saved, _ALIGNMENT), grad_pooled.contiguous()
    _run(_backward_pass(Kind.of(call), grad_x, grad_bonds), call, grad_pooled, saved, gradients=gradients)
    return gradients


_EAGER = Passes(_forward, _backward)
_NO_STATES = (None, None)


def implementation_of(call: LayerNetworkCall) -> Implementation | None:
    """Return the implementation of an eager call; None where encoders, a head or a loss are operators of their own."""
    alone = call.encoders == _NO_STATES and not call.head and call.objective is None
    return _EAGER if alone and PLAIN.issuperset(map(type, call.tensors)) else None


def _operator(*args: Any) -> tuple[Tensor, ...]:
    return _forward(LayerNetworkCall.of(*args))[0][:3]


def _operator_backward(grad_pooled: Tensor, saved: Tensor, grad_x: bool, grad_bonds: bool, *args: Any) -> Gradients:
    return _backward(LayerNetworkCall.of(*args), Kept(saved), grad_pooled, grad_x, grad_bonds)


def _refuse_what_is_for_cuda(call: LayerNetworkCall) -> None:
    """Check that the CPU computes a call.

    Raises:
        UserError: If the CPU does not compute in the dtype of x, or does not have the strategy.
        ValueError: If the CPU does not take merged leaves.
    """
    dtype = call.graph.x.dtype
    if dtype not in _PASS:
        raise UserError(f"backend=fused on a CPU computes in float32 or float64, not {dtype}. Convert model and batch or use backend=pyg.")
    if call.graph.leaves_merged:
        raise ValueError("layer_network: the CPU does not take merged leaves; give a batch whose leaves are not merged")
    if call.options.strategy == "layer":
        raise UserError("backend.strategy=layer is for CUDA. On the CPU use auto or tile.")


def _contiguous(call: LayerNetworkCall) -> LayerNetworkCall:
    """Return the call with contiguous tensors. They must outlive the pass."""
    parameters, statistics = ([tensor.contiguous() for tensor in tensors] for tensors in (call.parameters, call.statistics))
    return call._replace(graph=call.graph.mapped(Tensor.contiguous), parameters=parameters, statistics=statistics)


def _run(
    laid_out: CpuPass,
    call: LayerNetworkCall,
    pooled: Tensor,
    saved: Tensor,
    *,
    new_statistics: Tensor | None = None,
    gradients: tuple[Tensor, Tensor, list[Tensor]] | None = None,
) -> None:
    """Run a forward pass if `new_statistics` is given, or a backward pass if `gradients` is given."""
    graph, program = call.graph, call.program
    rows = _rows(call)
    scratch = reused_empty(laid_out.columns[Home.SCRATCH].numbers(rows), graph.x.dtype)
    grad_x, grad_bonds, grad_parameters = (None, None, []) if gradients is None else gradients
    bases = {Home.X: graph.x, Home.BONDS: graph.bonds, Home.SCRATCH: scratch, Home.GRAD_X: grad_x, Home.GRAD_BONDS: grad_bonds}
    addresses = {home: _address(tensor) for home, tensor in bases.items()}
    itemsize = graph.x.element_size()
    addresses[Home.SAVED] = saved.data_ptr() + itemsize * _moments(call)
    memory = [addresses[each.home] + itemsize * laid_out.columns[each.home].first_number(each, rows) for each in laid_out.memory]
    statistics = [tensor.data_ptr() for tensor in call.statistics]
    if new_statistics is not None and call.batch_statistics:
        statistics += [tensor.data_ptr() for tensor in new_statistics.view(-1, program.hidden_channels)]
    coded = Kind.of(call).coded
    batch = _cpu.LayerBatch(
        (graph.num_graphs, graph.num_nodes, graph.col.shape[0], graph.num_bond_rows if coded else -1, torch.get_num_threads()),
        (graph.ptr.data_ptr(), graph.rowptr.data_ptr(), graph.col.data_ptr(), _address(graph.code) if coded else 0),
        (pooled.data_ptr(), saved.data_ptr() if call.batch_statistics else 0),
        (call.program.dropout, program.eps, program.momentum),
        int(call.seed) if call.program.drops else 0,
        [(tensor.data_ptr(), itemsize * tensor.numel()) for tensor in ((scratch, saved) if gradients is None else (scratch,))],
        (memory, [tensor.data_ptr() for tensor in call.parameters], [tensor.data_ptr() for tensor in grad_parameters], statistics),
    )
    _PASS[graph.x.dtype](laid_out.numbers.buffer_info()[0], batch)


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


register_saved_numbers("cpu", saved_numbers)
DIRECT["cpu"] = Direct(implementation_of)
torch.library.impl("molgcn::layer_network", "CPU", _operator)
torch.library.impl("molgcn::layer_network_backward", "CPU", _operator_backward)
