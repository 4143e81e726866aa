"""One forward or backward pass of a network: the memory of its values, gradients and parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from molgcn.ops.layer_network.backward import Backward, backward_of
from molgcn.ops.layer_network.call import LayerNetworkCall
from molgcn.ops.layer_network.kept_in_part import signs_alone, signs_kept, summed_values
from molgcn.ops.layer_network.layouts import (
    Ref,
    Sizes,
    backward_layout,
    in_memory,
    launches_layout,
    saved_layout,
    scratch_layout,
    signs_of,
)
from molgcn.ops.layer_network.memory import FEW_ATOMS, aligned, side_by_side, stride_of
from molgcn.ops.layer_network.products_plan import MAX_WIDTH
from molgcn.ops.layer_network.program import Program, biases_without_effect, fixed_eps
from molgcn.ops.layer_network.steps import BONDS, Linear, X
from molgcn.ops.layer_network.tiles_plan import LAYERS_OF_LAUNCH, pays
from molgcn.ops.read_again import may_be_read_again

_LAYERS_TOGETHER = 4  # the number of layers whose weight gradients are one launch in a batch of at most FEW_ATOMS atoms
_VERY_FEW_ATOMS = 1536  # the most atoms of a batch in which the weight gradients of all layers are one launch


class Rows(NamedTuple):
    """Rows in memory.

    Attributes:
        tensor: The memory, float [num_rows, stride]. Columns from `width` on are zeros.
        width: The number of columns in use.
    """

    tensor: Tensor
    width: int

    @property
    def address(self) -> int:
        """The address of the first number."""
        return self.tensor.data_ptr()

    @property
    def stride(self) -> int:
        """The distance between two rows in numbers, a multiple of 4."""
        return self.tensor.shape[1]

    @property
    def values(self) -> Tensor:
        """The rows [num_rows, width]."""
        return self.tensor[:, : self.width]


class Pass:
    """The memory that the steps of one pass read and write.

    Args:
        call: The network and the batch.
        saved: The moments of batch norms and then the values that backward reads, [saved_numbers(call)] in x's dtype.
        backward: Whether this is a backward pass, whose gradients get memory too.
        signs_alone: Whether the values of :func:`signs_alone` and :func:`summed_values` have no rows.
        grad_x: Whether the gradient of x is wanted, in a backward pass.
        grad_bonds: Whether the gradient of the bonds' rows is wanted, in a backward pass.

    Attributes:
        is_backward: Whether this is a backward pass.
        kept: The values that forward keeps for backward.
        signs_alone: The values that have no rows, of which only the signs are kept.
        summed: The values that have no rows, since their launch adds them to the next value.
        signs_kept: The values of which forward keeps the signs for backward, and no rows.
    """

    def __init__(
        self, call: LayerNetworkCall, saved: Tensor, *, backward: bool, signs_alone: bool, grad_x: bool = False, grad_bonds: bool = False
    ) -> None:
        self.call = call
        self.graph = call.graph
        self.program = call.program
        self.saved = saved
        self.is_backward = backward
        self._sizes = _sizes(call, signs_alone)
        self.signs_alone, self.summed, self.signs_kept = self._sizes.signs_alone, self._sizes.summed, self._sizes.signs_kept
        self.kept = _kept(call, self._sizes)
        self._saved = saved_layout(self.program, self.kept, self._sizes)
        self._made_gradients = set[str]()
        self._names = {name: index for index, name in enumerate(call.program.parameters)}
        if backward:
            self.backward = backward_steps(call, grad_x=grad_x, grad_bonds=grad_bonds)
            free = frozenset() if may_be_read_again(saved) else self.kept - {X, BONDS}
            self._layout = backward_layout(self.program, self.backward, self._sizes, free)
        else:
            self._layout = scratch_layout(self.program, self.kept, self._sizes)

    @cached_property
    def _scratch(self) -> Tensor:
        return self.graph.x.new_empty(self._layout.size)

    def lay_out_values(self, values: Iterable[int]) -> None:
        """Lay out the values of a forward pass anew for one launch that reads all of `values`, before any is used. Others get no memory."""
        self._layout = side_by_side(self._sizes.of_values(self.program, [value for value in values if value not in self.kept]))

    def lay_out_launches(self, launches: Sequence[Iterable[Ref]]) -> None:
        """Lay out the memory of a backward pass anew for launches that each touch some rows, before any is used. Others get no memory."""
        self._layout = launches_layout(self.program, self.backward, self._sizes, launches)

    def num_rows(self, value: int) -> int:
        """Return how many rows a value has, including padding."""
        return int(getattr(self._sizes, self.program.values[value].rows))

    def width(self, value: int) -> int:
        """Return how many columns a value has."""
        return self.program.values[value].width

    def rows(self, value: int) -> Rows:
        """Return the rows of a value of the forward pass."""
        given, width = (self.graph.x, self.graph.bonds), self.width(value)
        if not in_memory(self.program, value):
            tensor = given[value]
            assert tensor is not None
            return Rows(tensor, width)
        assert value not in self.signs_alone
        assert value not in self.summed
        return _rows(*self._place(value), self.num_rows(value), width)

    def _place(self, value: int) -> tuple[Tensor, int]:
        """Return the memory of a value that has any, and the offset of the value in it."""
        if value in self.kept:
            return self.saved, moments_size(self.call) + self._saved.offsets[Ref(False, value)]
        return self._scratch, self._layout.offsets[Ref(False, value)]

    def signs(self, value: int) -> Tensor:
        """Return the memory behind a value's rows in which a product keeps where they are positive, [ceil(rows / 8), ceil(width / 16), 4].

        Each number holds 32 bits, as `signs_of` in cuda/product_finish.cuh explains.
        """
        memory, offset = self._place(value)
        groups, chunks = -(-self.num_rows(value) // 8), -(-self.width(value) // 16)
        begin = offset + self._sizes.numbers(self.program, value)
        return memory[begin : begin + 4 * groups * chunks].view(groups, chunks, 4)

    def kept_signs(self, value: int) -> Tensor:
        """Return the memory for the signs that forward keeps of a value without its rows, a byte for each four columns of a row."""
        begin = moments_size(self.call) + self._saved.offsets[signs_of(value)]
        return self.saved[begin : begin + self._sizes.of_gradient(self.program, value) // 16]

    def gradient(self, number: int) -> Rows:
        """Return the rows of a gradient of the backward pass."""
        value, ref = self.backward.gradients[number], Ref(True, number)
        over = self._layout.over.get(ref)
        place = (self._scratch, self._layout.offsets[ref]) if over is None else self._place(over.number)
        return _rows(*place, self.num_rows(value), self.width(value))

    def parameter(self, name: str) -> Tensor:
        """Return the parameter of this name."""
        return self.call.parameters[self._names[name]]

    def mask_scale(self, mask: Linear) -> float:
        """Return the factor of the gradient of a step with relu where its value is not 0: 1 / (1 - p) with dropout, otherwise 1."""
        return 1.0 if mask.dropout is None else 1 / (1 - self.call.program.dropout)

    def adds_gradient(self, name: str) -> bool:
        """Note that a step computes a parameter's gradient, and return whether it adds that to what another step with it has computed."""
        adds = name in self._made_gradients
        self._made_gradients.add(name)
        return adds

    @property
    def grad_parameters(self) -> Mapping[str, Tensor]:
        """The memory for every parameter's gradient, by its name: see :func:`gradients_of_parameters`."""
        return self._gradients[0]

    @property
    def zero_gradients(self) -> Tensor:
        """The part of that memory that a pass sets to zero."""
        return self._gradients[1]

    @cached_property
    def _gradients(self) -> tuple[Mapping[str, Tensor], Tensor]:
        return gradients_of_parameters(self.call)

    def moments(self, norm: str) -> Tensor:
        """Return the memory for the mean and 1 / standard deviation of a batch norm's input [2, H], with batch statistics."""
        hidden, index = self.program.hidden_channels, self.program.batch_norms.index(norm)
        return self.saved[2 * hidden * index : 2 * hidden * (index + 1)].view(2, hidden)

    def running(self, norm: str) -> tuple[Tensor, Tensor]:
        """Return the running mean and variance [H] of a batch norm."""
        index, count = self.program.batch_norms.index(norm), len(self.program.batch_norms)
        return self.call.statistics[index], self.call.statistics[count + index]

    @cached_property
    def new_statistics(self) -> Tensor:
        """The memory for running means and variances after this batch: [2, K, H] with batch statistics, otherwise [2, 0, H]."""
        return self.graph.x.new_empty(2, len(self.program.batch_norms) if self.call.batch_statistics else 0, self.program.hidden_channels)

    def new_running(self, norm: str) -> tuple[Tensor, Tensor]:
        """Return the memory for the running mean and variance [H] of a batch norm after this batch."""
        mean, variance = self.new_statistics[:, self.program.batch_norms.index(norm)]
        return mean, variance


def gradients_of_parameters(call: LayerNetworkCall) -> tuple[dict[str, Tensor], Tensor]:
    """Return uninitialised memory for every parameter's gradient, by its name, and the part of it that is to become zero.

    Gradients are zero for an eps that is not learnt and for biases that a norm subtracts again. They lie one after another.
    """
    left_out = biases_without_effect(call.program, call.norms_of_batch) | fixed_eps(call.program)
    shapes = {name: shape for name, shape in call.program.parameters.items() if name in left_out}
    made = {name: call.graph.x.new_empty(shape) for name, shape in call.program.parameters.items() if name not in shapes}
    sizes = [math.prod(shape) for shape in shapes.values()]
    zeros = call.graph.x.new_empty(sum(sizes))
    parts = zeros.split(sizes) if sizes else ()
    found = made | {name: part.view(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}
    return {name: found[name] for name in call.program.parameters}, zeros


def saved_numbers(call: LayerNetworkCall, *, signs_alone: bool = False) -> int:
    """Return how many numbers forward keeps for backward: the moments of batch norms and the values that backward reads.

    Args:
        call: The network and the batch.
        signs_alone: Whether the values of :func:`signs_alone` and :func:`summed_values` have no rows.
    """
    sizes = _sizes(call, signs_alone)
    return moments_size(call) + saved_layout(call.program, _kept(call, sizes), sizes).size


def moments_size(call: LayerNetworkCall) -> int:
    """Return the size of all batch norms' moments in numbers, rounded up to the alignment."""
    numbers = 2 * len(call.program.batch_norms) * call.program.hidden_channels if call.batch_statistics else 0
    return aligned(numbers)


def _sizes(call: LayerNetworkCall, without_rows: bool) -> Sizes:
    program = call.program
    sizes = Sizes(call.graph.num_nodes, call.graph.num_bond_rows, call.graph.col.shape[0])
    if not without_rows:
        return sizes
    if call.options.save_for_backward and not call.options.recompute:
        sizes = sizes._replace(signs_kept=signs_kept(program))
    if not uses_tensor_cores(call):
        return sizes
    return sizes._replace(signs_alone=frozenset() if call.options.recompute else signs_alone(program), summed=summed_values(program))


def uses_tensor_cores(call: LayerNetworkCall) -> bool:
    """Return whether the project's kernels compute the matrix products: they support the dtype and all widths."""
    return call.graph.x.dtype == torch.float32 and _widest(call.program) <= MAX_WIDTH


@cache
def _widest(program: Program) -> int:
    return max(value.width for value in program.values)


def backward_steps(call: LayerNetworkCall, *, grad_x: bool, grad_bonds: bool) -> Backward:
    """Return the backward pass of a call."""
    program = call.program
    together, num_atoms = 1, call.graph.num_nodes
    if pays(call):
        together = 1 if call.options.recompute else LAYERS_OF_LAUNCH
    elif call.graph.x.is_cuda and num_atoms <= FEW_ATOMS:
        together = len(call.program.ends) if num_atoms <= _VERY_FEW_ATOMS else _LAYERS_TOGETHER
    by_round = num_atoms > FEW_ATOMS  # gradients of rounds then take more memory than launches take time
    again = _attends_again(call)
    return backward_of(program, grad_x, grad_bonds, together, call.options.recompute, call.norms_of_batch, again, by_round)


def _attends_again(call: LayerNetworkCall) -> bool:
    """Return whether backward computes values of attention again, in every other layer. All are a third of what a large batch keeps."""
    return call.graph.num_nodes > FEW_ATOMS


def _kept(call: LayerNetworkCall, sizes: Sizes) -> frozenset[int]:
    """Return the values whose rows backward may read, whatever gradients are wanted. There are none without `save_for_backward`."""
    if not call.options.save_for_backward:
        return frozenset()
    program = call.program
    return backward_of(program, True, True, recompute=call.options.recompute, attends_again=_attends_again(call)).kept - sizes.signs_kept


def _rows(memory: Tensor, offset: int, num_rows: int, width: int) -> Rows:
    stride = stride_of(width)
    return Rows(memory[offset : offset + num_rows * stride].view(num_rows, stride), width)
