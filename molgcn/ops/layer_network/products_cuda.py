"""The matrix products of a pass on tensor cores, with up to 1,024 input and output columns, in the precision of the call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any, NamedTuple

from torch import Tensor

from molgcn.cuda_runtime.launch import gpu, kernel
from molgcn.ops.layer_network.grad_launches_cuda import GradLaunch, backward_launches
from molgcn.ops.layer_network.gradient_steps import InputGrad, WeightGrads
from molgcn.ops.layer_network.launches_cuda import Launch, again_launches, forward_launches
from molgcn.ops.layer_network.layer_ends_cuda import LayerEnds
from molgcn.ops.layer_network.memory import FEW_ATOMS, stride_of
from molgcn.ops.layer_network.passes import Pass, Rows
from molgcn.ops.layer_network.products_arguments import MAX_PRODUCTS, MAX_WEIGHTS, OPERANDS, ROWS, ROWS_RESULT, WEIGHTS
from molgcn.ops.layer_network.products_macros import (
    Macros,
    forward_product,
    grad_product,
    prefetch_kernels,
    shapes_of,
    weights_macros,
)
from molgcn.ops.layer_network.products_plan import RowBlocks, in_chunks
from molgcn.ops.layer_network.program import signed_values
from molgcn.ops.layer_network.steps import Finish, Gather, Linear
from molgcn.ops.layer_network.weights_plan import weight_blocks
from molgcn.ops.layer_network.workspace import Workspace

_OPERANDS_THREADS = 256


class _Operand(NamedTuple):
    """The addresses of a weight in the form that tensor cores read: its fragments and the scales of its columns."""

    fragments: int
    scales: int


class Weights(NamedTuple):
    """The names of weights that a launch multiplies by as by one.

    Attributes:
        names: The names.
        side_by_side: Whether their columns lie side by side; otherwise their rows take turns, 16 of each.
    """

    names: tuple[str, ...]
    side_by_side: bool = False


class TensorCoreProducts:
    """The matrix products of a pass on tensor cores.

    Args:
        run: The pass, for which :func:`.passes.uses_tensor_cores` is true.
        workspace: The memory and the sums that kernels share.
        ends: The ends of layers of the pass.
    """

    def __init__(self, run: Pass, workspace: Workspace, ends: LayerEnds) -> None:
        self.run, self._workspace, self._ends = run, workspace, ends
        self._device = run.graph.x.device
        self._gpu = gpu(self._device)

    def prepare(self) -> None:
        """Prepare the operands of a backward pass, as its first launch: the weights are read before what comes before has ended."""
        _ = self._backward_operands

    def linear(self, launch: Launch) -> None:
        """Compute the value of a launch of :class:`Linear` steps, with the ends of layers that it includes."""
        run, (first, before, gather, then, after, leaves, beside, _, parts) = self.run, launch
        last = launch.last
        assert isinstance(first, Linear)
        assert isinstance(last, Linear)
        it, source, weights = self._arguments(first.source), first.source, _weights_of(launch)
        if gather is not None:
            self._set_gather(it, gather)
            source = gather.source
        if then is not None:
            it.middle = self._result(first, first, weights[0])
        if beside is not None:
            it.second = run.rows(beside.source).address
        it.last = self._result(first if parts else last, after or (first if parts else last), weights[-1])
        for place, part in zip(("second", "third"), parts, strict=False):
            setattr(it, f"{place}_out", run.rows(part.out).address)
            if part.bias is not None:
                setattr(it, f"{place}_bias", run.parameter(part.bias).data_ptr())
        if beside is not None and first.bias is not None:
            it.last.bias = run.parameter(first.bias).data_ptr()
        if before is not None:
            it.before, source = self._ends.forward(before), before.source
            it.second = 0 if before.add is None else run.rows(before.add).address
            it.written = run.rows(before.out).address
        plan, macros = forward_product(run, launch, self._workspace.beside.part_of(self._gpu), again=run.is_backward)
        self._multiply(it, run.rows(source), plan, macros, leaves)

    def _set_gather(self, it: Any, gather: Gather) -> None:
        """Set the arguments of a gather whose result is multiplied."""
        run, graph = self.run, self.run.graph
        it.rowptr, it.col = graph.rowptr.data_ptr(), graph.col.data_ptr()
        if gather.bonds is not None:
            it.code, it.bond_rows = 0 if graph.code is None else graph.code.data_ptr(), run.rows(gather.bonds).address
        if gather.eps is not None:
            it.eps = run.parameter(gather.eps).data_ptr()
        it.gathered = run.rows(gather.out).address

    def _result(self, step: Linear, end: Linear | Finish, weights: Weights) -> Any:
        """Return the arguments of a step's product, or of that by several weights, which is followed by what comes with `end`."""
        run, it = self.run, ROWS_RESULT(*self._forward_operands[weights])
        if step.bias is not None:
            it.bias = run.parameter(step.bias).data_ptr()
        for added in (step.add, end.add):
            if added is not None and added not in run.summed:
                it.add = run.rows(added).address
        if end.dropout is not None:
            it.dropout_site = end.dropout
        it.out = run.rows(end.out).address
        if step.out not in run.signs_alone:
            it.kept = run.rows(step.out).address
        if step.out in signed_values(run.program):
            it.signs = run.signs(step.out).data_ptr()
        return it

    def input_grad(self, launch: GradLaunch) -> None:
        """Compute the gradients of a launch of :class:`InputGrad` steps, from that before the end of a layer if it includes one."""
        run, (first, before, mask, then, leaves, beside, sums, *_) = self.run, launch
        assert isinstance(first, InputGrad)
        it, grad = self._arguments(first.source.value), run.gradient(first.grad)
        if then is not None or beside is not None:
            it.middle = self._grad_result(first)
        it.last = self._grad_result(beside or then or first, *sums)
        for place, more in zip(("second", "third"), sums, strict=False):
            setattr(it, place, run.gradient(more.grad).address)
        if before is not None:
            it.before, it.second = self._ends.backward(before.step), run.rows(before.step.source).address
            it.written, grad = run.gradient(before.source.out).address, run.gradient(before.grad)
        if mask is not None:
            it.masked, it.first_signs = run.gradient(first.grad).address, run.signs(mask.step.source).data_ptr()
            it.first_site = -1 if mask.step.dropout is None else mask.step.dropout
            grad = grad if before is not None else run.gradient(mask.grad)
        if leaves is not None:
            it.next, it.next_source = self._ends.backward(leaves.step), run.rows(leaves.step.source).address
        plan, macros = grad_product(run, launch, self._workspace.beside.part_of(self._gpu))
        self._multiply(it, grad, plan, macros, None if leaves is None else leaves.step)

    def _grad_result(self, step: InputGrad, *sums: InputGrad) -> Any:
        run, steps, source = self.run, (step, *sums), (step, *sums)[-1].source
        it = ROWS_RESULT(*self._backward_operands[Weights(tuple(each.step.weight for each in steps))])
        if step.source.add is not None:
            it.add = run.gradient(step.source.add).address
        if source.mask is not None:
            it.signs = run.signs(source.value).data_ptr()
            it.mask_scale = run.mask_scale(source.mask)
        it.out = run.gradient(source.out).address
        return it

    def weight_grads(self, step: WeightGrads) -> None:
        """Compute the gradients of weights and biases."""
        for first in range(0, len(step.products), MAX_PRODUCTS):
            self._weight_grads(WeightGrads(step.products[first : first + MAX_PRODUCTS]))

    def _weight_grads(self, step: WeightGrads) -> None:
        run, it = self.run, WEIGHTS(num_products=len(step.products))
        tile, plans = weight_blocks(shapes_of(run, run.backward.gradients, step.products), self._gpu)
        few = run.graph.num_nodes <= FEW_ATOMS  # sums wait for those of other layers
        room = self._workspace.scratch if few else self._workspace.scratch_of_launch
        more = [[run.adds_gradient(name) for name in (product.weight, product.bias) if name is not None] for product in step.products]
        parts = [plan.splits if plan.splits > 1 or any(adds) else 0 for plan, adds in zip(plans, more, strict=True)]  # that are left
        partial, blocks = room(4 * sum(number * plan.split_numbers for number, plan in zip(parts, plans, strict=True))), 0
        for each, product, plan, left, adds in zip(it.products, step.products, plans, parts, more, strict=False):
            each.gradient = run.gradient(product.grad).address
            outs = {}
            if product.source is not None and product.weight is not None:
                each.source, outs["grad_weight"] = run.rows(product.source).address, run.grad_parameters[product.weight]
            if product.bias is not None:
                outs["grad_bias"] = run.grad_parameters[product.bias]
            if left:
                self._workspace.sums.add_outs([*outs.values()], partial, left, adds)
            to = partial
            for name, out in outs.items():
                setattr(each, name, to if left else out.data_ptr())
                to += 4 * out.numel()
            each.atoms, each.bonds = self._real(run.backward.gradients[product.grad])
            each.num_rows, each.out, each.in_ = plan.shape
            each.num_tiles, each.splits = plan.num_tiles, plan.splits
            each.first_block = blocks
            partial += 4 * left * plan.split_numbers
            blocks += plan.num_blocks
        function = kernel(f"{tile.kernel}.cu", tile.kernel, weights_macros(run, tile), self._device)
        function.launch(blocks, tile.threads, tile.shared_bytes, it, overlap=True)
        if not few:
            self._workspace.sums.launch()

    def _arguments(self, value: int) -> Any:
        """Return the arguments of a product of the rows of a value, or of a gradient's."""
        call, rate = self.run.call, self.run.call.program.dropout
        it = ROWS(dropout_threshold=int(rate * 2**32), dropout_scale=1 / (1 - rate), seed=call.seed.data_ptr())
        it.atoms, it.bonds = self._real(value)
        return it

    def _multiply(self, it: Any, rows: Rows, plan: RowBlocks, macros: Macros, leaves: Finish | None) -> None:
        """Launch the products of rows. `it` has all other arguments of the kernel."""
        it.x, it.num_rows = rows.address, rows.tensor.shape[0]
        it.backwards, it.early = self._workspace.next_backwards(it.num_rows), self._workspace.beside.early
        if leaves is not None:
            it.left = self._ends.room(leaves, plan.num_blocks, plan.rows * plan.groups)
        prefetch = partial(prefetch_kernels, self.run, self._gpu)
        function = kernel("product_rows.cu", "product_rows", macros, self._device, prefetch)
        function.launch(plan.num_blocks, plan.threads, plan.shared_bytes, it, overlap=self._workspace.overlaps)
        self._workspace.overlaps = True
        self._ends.left(leaves)

    @cached_property
    def _forward_operands(self) -> Mapping[Weights, _Operand]:
        return self._prepare(self._forward_weights(), transposed=False)

    @cached_property
    def _backward_operands(self) -> Mapping[Weights, _Operand]:
        return self._prepare(self._backward_weights(), transposed=True)

    def _forward_weights(self) -> Iterator[Weights]:
        """Yield what launches multiply by in a forward pass, or where a backward pass computes values again."""
        run = self.run
        launches = again_launches(run, run.backward.steps) if run.is_backward else forward_launches(run, self._gpu)
        for launch in launches.values():
            yield from _weights_of(launch)

    def _backward_weights(self) -> Iterator[Weights]:
        """Yield what launches multiply gradients by."""
        for launch in backward_launches(self.run, self.run.backward.steps, self._gpu).values():
            if isinstance(step := launch.step, InputGrad):
                yield Weights(tuple(each.step.weight for each in (step, *launch.sums)))
                yield from (Weights((each.step.weight,)) for each in (launch.then, launch.beside) if each is not None)

    def _prepare(self, wanted: Iterable[Weights], *, transposed: bool) -> Mapping[Weights, _Operand]:
        """Prepare weights as operands of x W^T, or, if `transposed`, of G W."""
        all_weights, operands = list(dict.fromkeys(wanted)), dict[Weights, _Operand]()
        values = {name: self.run.parameter(name) for weights in all_weights for name in weights.names}
        values = values if transposed else {name: weight.T for name, weight in values.items()}
        chunks = [_chunks_of(weights, values[weights.names[0]]) for weights in all_weights]
        sizes = [4 * (256 * rows + 16) * columns for rows, columns in chunks]
        address = self._workspace.scratch(sum(sizes))
        for weights, (_, columns), size in zip(all_weights, chunks, sizes, strict=True):
            operands[weights] = _Operand(address, address + size - 4 * 16 * columns)
            address += size
        for first in range(0, len(all_weights), MAX_WEIGHTS):
            some = all_weights[first : first + MAX_WEIGHTS]
            it, blocks = OPERANDS(num_weights=len(some)), 0
            for each, weights, (_, columns) in zip(it.weights, some, chunks[first:], strict=False):
                for field, name in zip(("values", "second", "third"), weights.names, strict=False):
                    setattr(each, field, values[name].data_ptr())
                each.fragments, each.scales = operands[weights]
                weight = values[weights.names[0]]
                (each.rows, each.columns), (each.row_step, each.column_step) = weight.shape, weight.stride()
                each.weights, each.part = len(weights.names), stride_of(each.columns) if weights.side_by_side else 0
                each.first_block = blocks
                blocks += columns
            function = kernel("product_operands.cu", "product_operands", {"MAX_WEIGHTS": MAX_WEIGHTS}, self._device)
            function.launch(blocks, _OPERANDS_THREADS, 4 * 16 * _OPERANDS_THREADS // 32, it, overlap=self._workspace.overlaps)
            self._workspace.overlaps = False
        return operands

    def _real(self, value: int) -> tuple[int, int]:
        """Return the addresses from which `num_real` in cuda/quads.cuh reads the number of a value's rows without padding."""
        graph, rows = self.run.graph, self.run.program.values[value].rows
        if rows == "bonds" and graph.code is not None:
            return 0, 0
        return graph.ptr.data_ptr() + 4 * graph.num_graphs, 0 if rows == "atoms" else graph.rowptr.data_ptr()


def _weights_of(launch: Launch) -> list[Weights]:
    """Return the weights of the products of a forward launch, in their order."""
    step, beside, parts = launch.step, launch.beside, launch.parts
    if not isinstance(step, Linear):
        return []
    if parts:
        return [Weights((step.weight, *(part.weight for part in parts)), side_by_side=True)]
    if beside is not None:
        return [Weights((step.weight, beside.weight))]
    return [Weights((each.weight,)) for each in (step, launch.then) if each is not None]


def _chunks_of(weights: Weights, first: Tensor) -> tuple[int, int]:
    """Return how many chunks of 16 rows and of 16 columns the operand of weights has, of which `first` is the first."""
    (rows, columns), number = first.shape, len(weights.names)
    if weights.side_by_side:
        return in_chunks(rows), in_chunks(number * stride_of(columns))
    return number * in_chunks(rows), in_chunks(columns)
