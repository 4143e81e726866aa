"""`molgcn::layer_network` by plans: what Python decides about launches and memory, kept for all batches of about the same size.

A plan is made for sizes that are rounded up (:func:`.plan_key.capacity`): they determine memory, grids and what shares a launch. A call
sets the addresses and the numbers of molecules, atoms and bonds among the arguments. So a batch is neither padded nor copied. Sums over all
atoms may round otherwise than with a grid of the batch's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import chain, compress
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch import Tensor

from molgcn.cuda_runtime.plan import Place, Regions, recording
from molgcn.ops import encode_cuda, head_layers_cuda
from molgcn.ops.encode import PARAMETERS, Encoded
from molgcn.ops.expect import aligned, expect
from molgcn.ops.layer_network import kernels_cuda
from molgcn.ops.layer_network.call import LayerNetworkCall
from molgcn.ops.layer_network.forms import Form, Sizes, have_rows
from molgcn.ops.layer_network.implementation import AllGradients, Forward, Outputs, nothing_saved
from molgcn.ops.layer_network.plan_key import Key
from molgcn.ops.layer_network.planned_launches import Launches, begins_of
from molgcn.ops.layer_network.views import Views
from molgcn.ops.read_again import may_be_read_again
from molgcn.ops.running_statistics import copy_by_kernel

_PLANS = 128  # the most plans of each pass that are kept
_LINE = 128  # the bytes of a line of the cache, which backward may discard
_shape = attrgetter("shape")


class _Forward(NamedTuple):
    """The plan of a forward pass, and what the backward pass is planned from.

    Attributes:
        launches: The launches. Their outputs are the result, the running statistics, and what is saved.
        kept: Which of a call's tensors the backward pass reads.
        rows: Which of these have the rows of a batch.
        saved: The shape and the offset of each tensor that is saved: what the head's maps read, what layers save, and the states and the
            moments of each encoder.
        of_layers: The shape and the strides of the layers' running statistics.
        of_norm: The offset of the running statistics of the norm of the atoms' encoder, and their number. Both are without rows if the
            launches write them to where they belong.
    """

    launches: Launches
    kept: Sequence[bool]
    rows: Sequence[bool]
    saved: Sequence[tuple[torch.Size, int]]
    of_layers: tuple[torch.Size, tuple[int, ...]]
    of_norm: tuple[int, int]


@lru_cache(maxsize=_PLANS)
def _forward_plan(key: Key) -> _Forward:
    call = key.call()
    tensors, later = call.tensors, {*map(id, call.for_backward.tensors)}
    with torch.no_grad(), recording() as made:
        states = [None if inputs is None else encode_cuda.forward(*inputs) for inputs in call.encoders]
        encoded = call.encoded(states)
        whole = kernels_cuda.takes_end(encoded, key.kernels)
        result, statistics, saved, _ = kernels_cuda.forward(encoded if whole else encoded._replace(head=()), key.kernels)
        planes = [result] if whole else [result, *(result.new_empty(key.graphs, width) for width in key.widths[1:])]
        if not whole:
            assert key.head is not None
            head_layers_cuda.launch_forward(key.head, planes, [*call.head[::2]], [*call.head[1::2]], {})
        written = _write_statistics(call, statistics, states[0])
    of_encoders = [each for each in states if each is not None]
    to_save = [*planes[:-1], saved, *chain.from_iterable((each.states, each.moments) for each in of_encoders)]
    norms = [statistics, *(each.statistics for each in of_encoders)]
    launches = Launches(key, made, [planes[-1:], norms, to_save], tensors, [tensor is not None for tensor in tensors], [call.seed], written)
    kept = [tensor is not None and id(tensor) in later for tensor in tensors]
    saved_places = [*zip(map(_shape, to_save), begins_of(to_save), strict=False)]
    of_norm = (begins_of(norms)[1], norms[1].numel()) if states[0] is not None and not written else (0, 0)
    of_layers = torch.Size([2, 0 if written else statistics.shape[1], statistics.shape[2]]), statistics.stride()
    return _Forward(launches, kept, [*compress(have_rows(call), kept)], saved_places, of_layers, of_norm)


def _write_statistics(call: LayerNetworkCall, of_layers: Tensor, of_atoms: Encoded | None) -> list[Tensor]:
    """Write the running statistics of a call with counters, and count the batch; return what is written."""
    written, norms = list[Tensor](), len(call.norms_of_batch)
    encoder = call.encoders[0]
    of_encoder: list[Any] = [] if encoder is None else [encoder.running_mean, encoder.running_var]
    for buffers, counters, statistics in (
        ([*call.statistics], [*call.counters[:norms]], of_layers.flatten(0, 1)),
        (of_encoder, [*call.counters[norms:]], None if of_atoms is None else of_atoms.statistics),
    ):
        if counters and statistics is not None:
            copy_by_kernel(buffers, counters, statistics)
            written += [*buffers, *counters]
    return written


class Planned(NamedTuple):
    """The implementation of a call by plans.

    Attributes:
        key: What its plans depend on.
        form: The form of the call, which was checked.
        sizes: The sizes of its batch.
        tensors: Its tensors.
    """

    key: Key
    form: Form
    sizes: Sizes
    tensors: Sequence[Tensor | None]

    def run(self, call: LayerNetworkCall) -> Forward:
        """Run the forward pass. What is saved has the size of the plan."""
        key, form, sizes, tensors = self
        plan = _forward_plan(key)
        given: list[Any] = [*compress(tensors, plan.launches.read), call.seed]
        _, result, statistics, saved = plan.launches.run(call.graph.x, sizes, given, form.are_contiguous)
        width, (begin, count) = key.widths[-1], plan.of_norm
        outputs = Outputs(result.as_strided((sizes.graphs, width), (width, 1)), statistics.as_strided(*plan.of_layers), saved)
        of_encoders = statistics.as_strided((2, count // 2), (count // 2, 1), begin) if count else None, None
        if not key.options.save_for_backward:
            return Forward(outputs, of_encoders, (), nothing_saved)
        kept: list[Any] = [*compress(tensors, plan.kept)]
        backward = partial(_gradients, key, form, sizes, [*map(_shape, compress(kept, plan.rows))])
        return Forward(outputs, of_encoders, (saved, *kept, call.seed), backward)


def _gradients(
    key: Key, form: Form, sizes: Sizes, shapes: Sequence[torch.Size], kept: Sequence[Tensor], grad_result: Tensor, needed: Sequence[bool]
) -> AllGradients:
    """Return the gradients, see :class:`.implementation.Forward`.

    Args:
        key: What the plan depends on.
        form: The form of the call.
        sizes: The sizes of its batch.
        shapes: The shapes of the tensors with the rows of the batch.
        kept: What forward has kept. Hooks of autograd may have put any tensors in its place.
        grad_result: The gradient of the result.
        needed: Whether the gradient of each variable is wanted.
    """
    plan, (saved, *given, seed) = _forward_plan(key), kept
    fit, like = form.has_kept(given, plan.kept), given[0]
    if [*map(_shape, compress(given, plan.rows))] != shapes:
        raise ValueError("layer_network: other numbers of rows were saved for backward than came back")
    expect("layer_network", "saved", saved, plan.launches.sizes[-1:], like, torch.float32)
    expect("layer_network", "seed", seed, (1,), like, torch.int64)
    expect("layer_network", "grad_pooled", grad_result, (sizes.graphs, key.widths[-1]), like, torch.float32)
    of_x, of_bonds, *of_learnt = needed
    if key.encoders[0] is not None:
        of_x, of_learnt = any(of_learnt[: len(PARAMETERS)]), of_learnt[len(PARAMETERS) :]
    if key.encoders[1] is not None:
        of_bonds = any(of_learnt[: len(PARAMETERS)])
    made = _backward_plan(key, of_x, of_bonds, may_be_read_again(saved))
    given = [*given, seed, aligned(grad_result), aligned(saved, _LINE)]
    memory, flat = made.launches.run(saved, sizes, given, fit and form.are_contiguous)
    x, bonds = made.of_x, made.of_bonds
    return (
        None if x is None else memory.as_strided((sizes.atoms, x[0]), (x[1], 1), x[2]),
        None
        if bonds is None
        else memory.as_strided((sizes.bonds if sizes.kinds is None else sizes.kinds, bonds[0]), (bonds[1], 1), bonds[2]),
        made.learnt.of(flat),
    )


class _Backward(NamedTuple):
    """The plan of a backward pass and where its results lie.

    Attributes:
        launches: The launches.
        of_x: The width, the stride and the offset of the gradient of x in the memory of the pass, or None if it is not wanted.
        of_bonds: The width, the stride and the offset of the gradient of the bonds' rows in that memory, or None.
        learnt: The gradient of each tensor that is learnt among all gradients.
    """

    launches: Launches
    of_x: tuple[int, int, int] | None
    of_bonds: tuple[int, int, int] | None
    learnt: Views


def _of_head(key: Key, call: LayerNetworkCall, planes: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Return the gradients of the pooled rows and of the head, given the rows that its maps have read and the gradient of its result."""
    found, of_pooled = [tensor.new_empty(tensor.shape) for tensor in call.head], planes[0].new_empty(planes[0].shape)
    assert key.head is not None
    head_layers_cuda.launch_backward(key.head, planes, [*call.head[::2]], {"grad_x": of_pooled}, found[::2], found[1::2])
    return of_pooled, found


@lru_cache(maxsize=_PLANS)
def _backward_plan(key: Key, grad_x: bool, grad_bonds: bool, read_again: bool) -> _Backward:
    """Return the plan of a backward pass, whose launches depend on whether what forward saved may be read again."""
    whole, forward = key.call(), _forward_plan(key)
    call = whole.for_backward
    grad = torch.empty(key.graphs, key.widths[-1], device=key.device)
    kept = torch.empty(forward.launches.sizes[-1], device=key.device)
    parts = [kept[begin : begin + shape.numel()].view(shape) for shape, begin in forward.saved]
    *planes, saved = parts[: len(key.widths)]
    of_encoders, states, moments = iter(parts[len(key.widths) :]), list[Encoded | None](), list[Tensor | None]()
    for inputs in call.encoders:
        found = None if inputs is None else Encoded(next(of_encoders), kept, next(of_encoders))
        states.append(found)
        moments.append(None if found is None else found.moments)
    with torch.no_grad(), recording() as made:
        grad_pooled, of_head = (grad, []) if not call.head else _of_head(key, call, [*planes, grad])
        *of_inputs, parameters = kernels_cuda.backward(
            call.encoded(states)._replace(head=()), key.kernels, grad_pooled, saved, grad_x=grad_x, grad_bonds=grad_bonds
        )
        learnt = [gradient for each in zip(of_inputs, moments, call.encoders, strict=True) for gradient in encode_cuda.gradients_of(*each)]
        learnt += [*parameters, *of_head]
    holders = Regions([(tensor, Place(index)) for index, tensor in enumerate(made.allocated)])
    used = {holders.place(gradient.data_ptr()).buffer for gradient in learnt if gradient is not None}
    # Equal shapes lie side by side, for views of several at a time, at addresses that kernels read four numbers from.
    buffers = sorted((made.allocated[index] for index in used), key=lambda tensor: (*tensor.shape,))
    launches = Launches(key, made, [buffers], whole.tensors, forward.kept, [whole.seed, grad, kept], alignment=16)
    places: list[tuple[int, int, int] | None] = []
    for rows, inputs in zip(of_inputs, call.encoders, strict=True):
        wanted = rows.numel() > 0 and inputs is None
        places.append((rows.shape[1], rows.stride(0), launches.own.place(rows.data_ptr()).offset // 4) if wanted else None)
    views = Views(
        [None if each is None else (each.shape, each.stride(), launches.own.place(each.data_ptr()).offset // 4) for each in learnt]
    )
    return _Backward(launches, places[0], places[1], views)


def plan_count() -> tuple[int, int]:
    """Return how many plans were made in this process, and how often a plan was asked for."""
    forward, backward = _forward_plan.cache_info(), _backward_plan.cache_info()
    made = forward.misses + backward.misses
    return made, made + forward.hits + backward.hits
