"""What the plans of a call of `molgcn::layer_network` depend on."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor

from molgcn.cuda_runtime.launch import Launcher, gpu, launcher
from molgcn.ops.encode import EncodeInputs
from molgcn.ops.gcn_tile_plan import shared_limit
from molgcn.ops.graph import Graph
from molgcn.ops.head_layers_plan import HeadPlan, plan_head
from molgcn.ops.layer_network.call import LayerNetworkCall, Options
from molgcn.ops.layer_network.forms import Form, Sizes
from molgcn.ops.layer_network.kernels_cuda import PLANNED
from molgcn.ops.layer_network.passes import uses_tensor_cores
from molgcn.ops.layer_network.program import Program

_STEPS = 8  # the number of capacities between a power of two and the next
_OF_ROWS = [EncodeInputs._fields.index(name) for name in ("x", "walks")]
_ROWS = ("num_graphs", "num_nodes", "num_atoms", "num_bond_rows", "num_edges", "num_rows")  # fields of arguments
_Shapes = tuple[tuple[torch.Size | None, ...], tuple[Any, ...]]


@lru_cache(maxsize=1024)
def capacity(count: int) -> int:
    """Return the size, at least `count`, that a plan is made for: at most an eighth more, or a multiple of 8."""
    step = max(_STEPS, 2 ** max(0, (count - 1).bit_length() - 1) // _STEPS)
    return max(1, -(-count // step)) * step


def _unlike(size: int, *others: int | None) -> int:
    """Return a capacity, a step or more larger where it would be one of the other numbers."""
    while size in others:
        size += _STEPS
    return size


class Key(NamedTuple):
    """What the plans of a call depend on.

    Attributes:
        program: The network.
        options: The options of the call.
        kernels: The name of the kernels; see :mod:`molgcn.ops.layer_network.kernels_cuda`.
        shared_limit: The most bytes of shared memory of a block of kernels for graph convolutions.
        device: The device.
        launcher: The launcher of the kernels.
        graphs: The capacity for molecules.
        atoms: The capacity for atoms.
        bonds: The capacity for bonds.
        kinds: The number of distinct bonds; None where each bond has its own row or there are no bond features.
        tiles: The capacity for tiles; None without tiles.
        hints: The graph's hints about its tiles.
        has_statistics: Whether running statistics are given.
        counters: The number of counters of batches.
        encoders: The shapes of the encoders' tensors, see :func:`_shapes`.
        widths: The numbers of columns of the pooled rows and of the results of the head's maps.
    """

    program: Program
    options: Options
    kernels: str
    shared_limit: int
    device: torch.device
    launcher: Launcher
    graphs: int
    atoms: int
    bonds: int
    kinds: int | None
    tiles: int | None
    hints: tuple[int, bool, bool]
    has_statistics: bool
    counters: int
    encoders: tuple[_Shapes | None, ...]
    widths: tuple[int, ...]

    @staticmethod
    def of(call: LayerNetworkCall, kernels: str) -> Key | None:
        """Return the key of a call, or None where Python has to plan each call: plans hold no launches of PyTorch's.

        Args:
            call: The call.
            kernels: The name of its kernels.
        """
        graph, program, tile_ptr = call.graph, call.program, call.graph.tile_ptr
        if (
            kernels not in PLANNED
            or not uses_tensor_cores(call)
            or program.pool == "none"
            or 0 in (graph.num_graphs, graph.num_nodes)
            or any(inputs is not None and inputs.out_channels % 4 > 0 for inputs in call.encoders)  # their gradients have gaps
            or (kernels == "tile" and (tile_ptr is None or program.hidden_channels % 4 > 0))
        ):
            return None
        kinds = None if graph.code is None or graph.bonds is None else graph.bonds.shape[0]
        # A number of rows says what they are rows of.
        graphs = _unlike(capacity(graph.num_graphs), kinds)
        atoms = _unlike(capacity(graph.num_nodes), kinds, graphs)
        bonds = _unlike(capacity(graph.col.shape[0]), kinds, graphs, atoms)
        key = Key(
            program,
            call.options,
            kernels,
            shared_limit(gpu(graph.x.device)),
            graph.x.device,
            launcher(),
            graphs,
            atoms,
            bonds,
            kinds,
            None if tile_ptr is None else capacity(tile_ptr.shape[0] - 1),
            graph.hints,
            len(call.statistics) > 0,
            len(call.counters),
            tuple(None if inputs is None else _shapes(inputs) for inputs in call.encoders),
            tuple(call.widths),
        )
        return key if len(key.widths) == 1 or key.head is not None else None

    @property
    def head(self) -> HeadPlan | None:
        """How the head is divided, or None if PyTorch computes it."""
        return plan_head(self.widths, self.graphs, gpu(self.device))

    @property
    def counts(self) -> dict[str, dict[int, int]]:
        """The fields of arguments that a call sets, as :class:`molgcn.cuda_runtime.plan.Plan` takes them."""
        rows = {self.graphs: 0, self.atoms: 1, self.bonds: 2}
        return {**dict.fromkeys(_ROWS, rows), "num_tiles": {self.tiles or 0: 3}}

    def call(self) -> LayerNetworkCall:
        """Return a call of this size on memory of its own that holds nothing."""
        device, program = self.device, self.program

        def indices(count: int) -> Tensor:
            return torch.empty(count, dtype=torch.int32, device=device)

        def numbers(*shape: int) -> Tensor:
            return torch.empty(shape, device=device)

        rows = self.bonds if self.kinds is None else self.kinds
        graph = Graph(
            numbers(self.atoms, program.in_channels),
            None if program.edge_channels is None else numbers(rows, program.edge_channels),
            indices(self.graphs + 1),
            indices(self.atoms + 1),
            indices(self.bonds),
            None if self.kinds is None else indices(self.bonds),
            None if self.tiles is None else indices(self.tiles + 1),
            None,
            *self.hints,
        )
        statistics = program.statistics.values() if self.has_statistics else ()
        seed = torch.empty(1, dtype=torch.int64, device=device)

        def encoder(form: _Shapes | None, rows: int) -> EncodeInputs | None:
            if form is None:
                return None
            shapes, options = form
            made = [None if shape is None else numbers(*((rows,) * (index in _OF_ROWS)), *shape) for index, shape in enumerate(shapes)]
            inputs = EncodeInputs.of(made, options)
            return inputs if inputs.num_real is None else inputs._replace(num_real=indices(1).view(()))

        return LayerNetworkCall(
            graph,
            program,
            [numbers(*s) for s in program.parameters.values()],
            [numbers(*s) for s in statistics],
            seed,
            self.options,
            (encoder(self.encoders[0], self.atoms), encoder(self.encoders[1], rows)),
            [numbers(*shape) for wide, narrow in pairwise(self.widths) for shape in ((narrow, wide), (narrow,))],
            counters=[torch.empty((), dtype=torch.int64, device=device) for _ in range(self.counters)],
        )


def key_of(call: LayerNetworkCall, kernels: str, form: Form, sizes: Sizes) -> Key | None:
    """Return :meth:`Key.of` a call, given its form, of which keys are remembered, and its sizes."""
    graphs, atoms, bonds, kinds, tiles = sizes
    if graphs == 0 or atoms == 0:
        return None
    device = call.graph.x.device
    capacities = (capacity(graphs), capacity(atoms), capacity(bonds), kinds, tiles and capacity(tiles))
    return form.made((kernels, shared_limit(gpu(device)), launcher(), capacities), lambda: Key.of(call, kernels))


def _shapes(inputs: EncodeInputs) -> _Shapes:
    """Return the shapes of an encoder's tensors, of rows without their number, and its options."""
    shapes = [None if tensor is None else tensor.shape for tensor in inputs.tensors]
    return tuple(shape and shape[index in _OF_ROWS :] for index, shape in enumerate(shapes)), inputs.options
