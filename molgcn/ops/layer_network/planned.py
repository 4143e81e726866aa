"""`molgcn::layer_network` by plans: what Python decides about launches and memory, kept for all batches of about the same size.

A plan is made for sizes that are rounded up (:func:`capacity`): they determine memory, grids and what shares a launch. A call sets the
addresses and the numbers of molecules, atoms and bonds among the arguments. So a batch is neither padded nor copied. Sums over all atoms
may round otherwise than with a grid of the batch's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from operator import or_
from typing import NamedTuple

import torch
from torch import Tensor

from molgcn.cuda_runtime.plan import Place, Plan, Recording, Region, Regions, recording
from molgcn.ops import encode_cuda, head_layers_cuda
from molgcn.ops.expect import aligned
from molgcn.ops.graph import Graph
from molgcn.ops.layer_network import kernels_cuda
from molgcn.ops.layer_network.call import LayerNetworkCall
from molgcn.ops.layer_network.implementation import AllGradients, Outputs, States
from molgcn.ops.layer_network.plan_key import Key

_PLANS = 128  # the most plans of each pass that are kept
_ALIGNMENT = 256  # bytes
_PTR, _TILE_PTR = (Graph._fields.index(name) for name in ("ptr", "tile_ptr"))


class _Planned:
    """The plan of a pass, with the memory that a call makes for it.

    The first buffers are the memory of the pass, and then the outputs. The tensors of the call and others that it reads follow.

    Args:
        key: What the plan depends on.
        made: The recording of the pass.
        outputs: The memory of outputs that outlive the pass, several tensors one after another in each buffer.
        given: The tensors that the pass reads, or None.

    Attributes:
        sizes: The sizes of the buffers that a call makes, in numbers of 4 bytes.
        own: The places of the recorded addresses in these buffers. It holds no memory.
    """

    def __init__(self, key: Key, made: Recording, outputs: Sequence[Sequence[Tensor]], given: Sequence[Tensor | None]) -> None:
        starts = {tensor.data_ptr() for tensors in (*outputs, given) for tensor in tensors if tensor is not None}
        scratch = [tensor for tensor in made.allocated if tensor.data_ptr() not in starts]
        self.sizes, own = list[int](), list[Region]()
        for tensors, alignment in ((scratch, _ALIGNMENT), *((tensors, 1) for tensors in outputs)):
            offset = 0
            for tensor in tensors:
                own.append((tensor, Place(len(self.sizes), offset)))
                offset += -(-tensor.numel() * tensor.element_size() // alignment) * alignment
            self.sizes.append(offset // 4)
        regions = [(tensor, Place(len(self.sizes) + index)) for index, tensor in enumerate(given) if tensor is not None]
        self.own = Regions(own)
        self._plan = Plan(made.launches, [*own, *regions], len(self.sizes) + len(given), 4, key.counts)

    def run(self, call: LayerNetworkCall, *read: Tensor | None) -> list[Tensor]:
        """Launch the pass of a call and return the memory that it has made, float32 [size] for each of :attr:`sizes`.

        Tensors that are not as kernels read them are copied.
        """
        graph, tensors = call.graph, [*call.tensors, call.seed, *read]
        addresses = _addresses(tensors)
        if reduce(or_, addresses) % 16 > 0 or not all(map(Tensor.is_contiguous, [each for each in tensors if each is not None])):
            tensors = [None if tensor is None else aligned(tensor) for tensor in tensors]  # kept until they are read
            addresses = _addresses(tensors)
        memory = [graph.x.new_empty(size) for size in self.sizes]
        tiles = 0 if graph.tile_ptr is None else graph.tile_ptr.shape[0] - 1
        ends = addresses[_PTR] + 4 * graph.num_graphs, addresses[_TILE_PTR] + 4 * tiles
        self._plan.run([*_addresses(memory), *ends, *addresses], (graph.num_graphs, graph.num_nodes, graph.col.shape[0], tiles))
        return memory


def _addresses(tensors: Sequence[Tensor | None]) -> list[int]:
    return [0 if tensor is None else tensor.data_ptr() for tensor in tensors]


def _given(call: LayerNetworkCall, *read: Tensor | None) -> list[Tensor | None]:
    """Return the tensors that a pass reads, in the order of :meth:`_Planned.run`: the ends of lists of molecules and tiles come first."""
    graph = call.graph
    ends = graph.ptr[-1:], None if graph.tile_ptr is None else graph.tile_ptr[-1:]
    return [*ends, *call.tensors, call.seed, *read]


@lru_cache(maxsize=_PLANS)
def _forward_plan(key: Key) -> _Planned:
    call = key.call()
    with torch.no_grad(), recording() as made:
        states = [None if inputs is None else encode_cuda.forward(*inputs) for inputs in call.encoders]
        call = call.encoded(states)
        whole = kernels_cuda.takes_end(call, key.kernels)
        result, statistics, saved, _ = kernels_cuda.forward(call if whole else call._replace(head=()), key.kernels)
        planes = [result] if whole else [result, *(result.new_empty(key.graphs, width) for width in key.widths[1:])]
        if not whole:
            assert key.head is not None
            head_layers_cuda.launch_forward(key.head, planes, [*call.head[::2]], [*call.head[1::2]], {})
    return _Planned(key, made, [planes[-1:], [statistics], [*planes[:-1], saved]], _given(call, *_made(states)))


def forward(key: Key, call: LayerNetworkCall, states: States) -> Outputs:
    """Return the operator's outputs. What is saved has the size of the plan.

    Args:
        key: What the plan depends on.
        call: The call on the states of its encoders.
        states: Memory for what the encoders compute.
    """
    _, pooled, statistics, saved = _forward_plan(key).run(call, *_made(states))
    count, width = call.graph.num_graphs, key.widths[-1]
    return Outputs(pooled[: count * width].view(count, width), statistics.view(2, -1, call.program.hidden_channels), saved)


def _made(states: States) -> list[Tensor]:
    """Return what encoders compute besides states, which are among the tensors of their call."""
    return [tensor for made in states if made is not None for tensor in made[1:]]


def saved_numbers(key: Key) -> int:
    """Return how many numbers :func:`forward` saves for backward: the rows that the head maps, and what layers save."""
    return _forward_plan(key).sizes[-1]


class _Backward(NamedTuple):
    """The plan of a backward pass and where its results lie.

    Attributes:
        plan: The plan.
        of_x: The offset and the stride of the gradient of x in the memory of the pass, or None if it is not wanted.
        of_bonds: The offset and the stride of the gradient of the bonds' rows in that memory, or None.
        learnt: The shape, the strides and the offset among all gradients of each tensor that is learnt, or None without a gradient.
    """

    plan: _Planned
    of_x: tuple[int, int] | None
    of_bonds: tuple[int, int] | None
    learnt: tuple[tuple[torch.Size, tuple[int, ...], int] | None, ...]


def _of_head(key: Key, call: LayerNetworkCall, planes: Sequence[Tensor]) -> tuple[Tensor, list[Tensor]]:
    """Return the gradients of the pooled rows and of the head, given the rows that its maps have read and the gradient of its result."""
    rows = [plane.view(key.graphs, width) for plane, width in zip(planes, key.widths, strict=True)]
    found, of_pooled = [tensor.new_empty(tensor.shape) for tensor in call.head], rows[0].new_empty(rows[0].shape)
    assert key.head is not None
    head_layers_cuda.launch_backward(key.head, rows, [*call.head[::2]], {"grad_x": of_pooled}, found[::2], found[1::2])
    return of_pooled, found


@lru_cache(maxsize=_PLANS)
def _backward_plan(key: Key, saved_numbers: int, grad_x: bool, grad_bonds: bool, retained: bool) -> _Backward:
    """Return the plan of a backward pass, whose launches depend on whether autograd retains its graph: see `gcn_tile_discard`."""
    call = key.call()
    grad = torch.empty(key.graphs, key.widths[-1], device=key.device)
    kept = torch.empty(saved_numbers, device=key.device)
    sizes = [key.graphs * width for width in key.widths[:-1]]
    *planes, saved = kept.split([*sizes, saved_numbers - sum(sizes)])
    moments = [None if inputs is None else torch.empty(3, inputs.num_normed, device=key.device) for inputs in call.encoders]
    with torch.no_grad(), recording() as made:
        grad_pooled, of_head = (grad, []) if not call.head else _of_head(key, call, [*planes, grad])
        *of_inputs, parameters = kernels_cuda.backward(
            call._replace(head=()), key.kernels, grad_pooled, saved, grad_x=grad_x, grad_bonds=grad_bonds
        )
        learnt = [gradient for each in zip(of_inputs, moments, call.encoders, strict=True) for gradient in encode_cuda.gradients_of(*each)]
        learnt += [*parameters, *of_head]
    found = [gradient for gradient in learnt if gradient is not None]
    holders = Regions([(tensor, Place(index)) for index, tensor in enumerate(made.allocated)])
    places = [holders.place(gradient.data_ptr()) for gradient in found]
    used = {place.buffer for place in places}
    # Four numbers of a gradient are added up at a time where they are aligned, as every tensor is: others come last.
    buffers = sorted(used, key=lambda index: made.allocated[index].numel() % 4 > 0)
    plan = _Planned(key, made, [[made.allocated[index] for index in buffers]], _given(call, *moments, grad, kept))
    own = plan.own
    wanted = (tensor.numel() > 0 and inputs is None for tensor, inputs in zip(of_inputs, call.encoders, strict=True))
    of_x, of_bonds = (
        (own.place(rows.data_ptr()).offset // 4, rows.stride(0)) if want else None for rows, want in zip(of_inputs, wanted, strict=True)
    )
    views = (None if each is None else (each.shape, each.stride(), own.place(each.data_ptr()).offset // 4) for each in learnt)
    return _Backward(plan, of_x, of_bonds, tuple(views))


def backward(
    key: Key,
    call: LayerNetworkCall,
    moments: Sequence[Tensor | None],
    grad_pooled: Tensor,
    saved: Tensor,
    grad_x: bool,
    grad_bonds: bool,
) -> AllGradients:
    """Return the gradients of x, of the bonds' rows and of what is learnt.

    The first two are empty if they are not wanted, and where an encoder maps these rows.

    Args:
        key: What the plan depends on.
        call: The call on the states of its encoders.
        moments: What the encoders' norms have normalised by, or None for rows without an encoder.
        grad_pooled: The gradient of the result.
        saved: What forward has saved.
        grad_x: Whether the gradient of x, or of its encoder, is wanted.
        grad_bonds: Whether the gradient of the bonds' rows, or of their encoder, is wanted.
    """
    key = key._replace(has_statistics=len(call.statistics) > 0)
    retained = torch._C._autograd._get_current_graph_task_keep_graph()
    graph, made = call.graph, _backward_plan(key, saved.shape[0], grad_x, grad_bonds, retained)
    memory, flat = made.plan.run(call, *moments, grad_pooled, saved)
    of_x, of_bonds = (
        memory.new_empty(0, 0) if place is None or rows is None else memory.as_strided(rows.shape, (place[1], 1), place[0])
        for place, rows in ((made.of_x, graph.x), (made.of_bonds, graph.bonds))
    )
    return of_x, of_bonds, [None if view is None else flat.as_strided(*view) for view in made.learnt]


def plan_count() -> tuple[int, int]:
    """Return how many plans were made in this process, and how often a plan was asked for."""
    forward, backward = _forward_plan.cache_info(), _backward_plan.cache_info()
    made = forward.misses + backward.misses
    return made, made + forward.hits + backward.hits
