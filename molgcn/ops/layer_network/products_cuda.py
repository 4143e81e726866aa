"""The matrix products of a pass on tensor cores, with up to 1,024 input and output columns, in the precision of the call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property, partial
from typing import Any, NamedTuple

import torch

from molgcn.cuda_runtime.launch import gpu, kernel
from molgcn.ops.layer_network.backward import InputGrad, WeightGrads
from molgcn.ops.layer_network.passes import Pass, Rows
from molgcn.ops.layer_network.products_arguments import MAX_PRODUCTS, MAX_WEIGHTS, OPERANDS, ROWS, WEIGHTS
from molgcn.ops.layer_network.products_macros import Follows, prefetch_kernels, rows_macros, rows_plan, shapes_of, weights_macros
from molgcn.ops.layer_network.products_plan import MAX_WIDTH, RowBlocks, in_chunks, shared_bytes, weight_blocks
from molgcn.ops.layer_network.steps import Linear
from molgcn.ops.layer_network.workspace import Workspace

_OPERANDS_THREADS = 256
_WEIGHTS_THREADS = 128


def fits(run: Pass) -> bool:
    """Return whether the kernels support the dtype and the widths of a pass."""
    return run.graph.x.dtype == torch.float32 and max(value.width for value in run.program.values) <= MAX_WIDTH


class _Operand(NamedTuple):
    """The addresses of a weight in the form that tensor cores read: its fragments and the scales of its columns."""

    fragments: int
    scales: int


class TensorCoreProducts:
    """The matrix products of a pass on tensor cores.

    Args:
        run: The pass, for which :func:`fits` is true.
        workspace: The counters and scratch memory of the kernels.
    """

    def __init__(self, run: Pass, workspace: Workspace) -> None:
        self.run = run
        self._workspace = workspace
        self._device = run.graph.x.device
        self._gpu = gpu(self._device)
        self._just_prepared = False

    def linear(self, step: Linear, norm: str | None) -> bool:
        """Compute a step's value, and return whether the moments of the following `norm` were computed too."""
        run, it = self.run, ROWS()
        it.atoms, it.bonds = self._real(step.source)
        if step.bias is not None:
            it.bias = run.parameter(step.bias).data_ptr()
        if step.add is not None:
            it.add = run.rows(step.add).address
        if step.dropout is not None:
            it.seed, it.dropout_site = run.call.seed.data_ptr(), step.dropout
            it.dropout_threshold = int(run.call.dropout_rate * 2**32)
            it.dropout_scale = 1 / (1 - run.call.dropout_rate)
        follows = Follows.linear(run, step, norm)
        plan = rows_plan(run, step.source, step.out, self._gpu)
        if follows.moments and norm is not None:
            self._ask_for_moments(it.norm, norm, plan)
        self._multiply(it, self._forward_operands[step.weight], run.rows(step.source), run.rows(step.out), plan, follows)
        return follows.moments

    def input_grad(self, step: InputGrad) -> None:
        """Compute the gradient of a step's source."""
        run, source, it = self.run, step.source, ROWS()
        it.atoms, it.bonds = self._real(source.value)
        if source.add is not None:
            it.add = run.gradient(source.add).address
        if source.mask is not None:
            it.mask = run.rows(source.value).address
            it.mask_scale = 1.0 if source.mask.dropout is None else 1 / (1 - run.call.dropout_rate)
        plan = rows_plan(run, step.step.out, source.value, self._gpu)
        operand = self._backward_operands[step.step.weight]
        self._multiply(it, operand, run.gradient(step.grad), run.gradient(source.out), plan, Follows.input_grad(step))

    def weight_grads(self, step: WeightGrads) -> None:
        """Compute the gradients of weights and biases."""
        for first in range(0, len(step.products), MAX_PRODUCTS):
            self._weight_grads(WeightGrads(step.products[first : first + MAX_PRODUCTS]))

    def _weight_grads(self, step: WeightGrads) -> None:
        run, it = self.run, WEIGHTS()
        shapes = shapes_of(run, run.backward.gradients, step.products)
        plans = weight_blocks(shapes, self._gpu)
        partial = self._workspace.scratch_of_launch(sum(plan.partial_bytes for plan in plans))
        blocks, it.num_products = 0, len(plans)
        for each, product, shape, plan in zip(it.products, step.products, shapes, plans, strict=False):
            each.gradient = run.gradient(product.grad).address
            if product.source is not None and product.weight is not None:
                each.source, each.grad_weight = run.rows(product.source).address, run.grad_parameters[product.weight].data_ptr()
            if product.bias is not None:
                each.grad_bias = run.grad_parameters[product.bias].data_ptr()
            each.atoms, each.bonds = self._real(run.backward.gradients[product.grad])
            each.num_rows, each.out, each.in_ = shape
            each.num_tiles, each.splits, each.rows_per_split = plan.num_tiles, plan.splits, plan.rows_per_split
            each.partial, each.arrivals, each.first_block = partial, self._workspace.counters(plan.num_counters), blocks
            each.splits_per_group = plan.splits_per_group
            partial += plan.partial_bytes
            blocks += plan.num_blocks
        tile = plans[0].tile
        function = kernel("product_weights.cu", "product_weights", weights_macros(run, tile), self._device)
        function.launch(blocks, _WEIGHTS_THREADS, shared_bytes(tile), it, overlap=True)

    def _multiply(self, it: Any, operand: _Operand, rows: Rows, out: Rows, plan: RowBlocks, follows: Follows) -> None:
        """Launch the product of rows and a weight. `it` has all other arguments of the kernel."""
        it.fragments, it.scales = operand
        it.x, it.out, it.num_rows = rows.address, out.address, rows.tensor.shape[0]
        prefetch = partial(prefetch_kernels, self.run, self._gpu)
        function = kernel("product_rows.cu", "product_rows", rows_macros(self.run, plan, follows), self._device, prefetch)
        overlap = not self._just_prepared  # the kernel reads operands before it waits for the previous launch
        function.launch(plan.num_blocks, plan.threads, plan.shared_bytes, it, overlap=overlap)
        self._just_prepared = False

    def _ask_for_moments(self, it: Any, norm: str, plan: RowBlocks) -> None:
        run = self.run
        it.moments = run.moments(norm).data_ptr()
        it.mean, it.variance = (tensor.data_ptr() for tensor in run.running(norm))
        it.new_mean, it.new_variance = (tensor.data_ptr() for tensor in run.new_running(norm))
        it.partial = self._workspace.scratch_of_launch((plan.num_blocks + plan.num_groups) * plan.part_bytes)
        it.group_sums = it.partial + plan.num_blocks * plan.part_bytes
        it.arrivals, it.blocks_per_group = self._workspace.counters(plan.num_groups + 1), plan.blocks_per_group
        it.eps, it.momentum = run.spec.eps, run.spec.momentum

    @cached_property
    def _forward_operands(self) -> Mapping[str, _Operand]:
        return self._prepare((step.weight for step in self.run.program.steps if isinstance(step, Linear)), transposed=False)

    @cached_property
    def _backward_operands(self) -> Mapping[str, _Operand]:
        return self._prepare((step.step.weight for step in self.run.backward.steps if isinstance(step, InputGrad)), transposed=True)

    def _prepare(self, names: Iterable[str], *, transposed: bool) -> Mapping[str, _Operand]:
        """Prepare the pass's weights as operands of x W^T, or, if `transposed`, of G W."""
        weights = {name: self.run.parameter(name) if transposed else self.run.parameter(name).T for name in dict.fromkeys(names)}
        chunks = {name: tuple(map(in_chunks, weight.shape)) for name, weight in weights.items()}
        sizes = {name: 4 * (256 * rows * columns + 16 * columns) for name, (rows, columns) in chunks.items()}
        address, operands = self._workspace.scratch(sum(sizes.values())), {}
        for name, size in sizes.items():
            operands[name] = _Operand(address, address + size - 4 * 16 * chunks[name][1])
            address += size
        for first in range(0, len(weights), MAX_WEIGHTS):
            some = list(weights)[first : first + MAX_WEIGHTS]
            it, blocks = OPERANDS(num_weights=len(some)), 0
            for each, name in zip(it.weights, some, strict=False):
                each.values, each.fragments, each.scales = weights[name].data_ptr(), *operands[name]
                (each.rows, each.columns), (each.row_step, each.column_step) = weights[name].shape, weights[name].stride()
                each.first_block = blocks
                blocks += chunks[name][1]
            function = kernel("product_operands.cu", "product_operands", {"MAX_WEIGHTS": MAX_WEIGHTS}, self._device)
            function.launch(blocks, _OPERANDS_THREADS, 4 * 16 * _OPERANDS_THREADS // 32, it, overlap=True)
        self._just_prepared = True
        return operands

    def _real(self, value: int) -> tuple[int, int]:
        """Return the addresses from which `num_real` in cuda/quads.cuh reads the number of a value's rows without padding."""
        graph = self.run.graph
        atoms = graph.ptr.data_ptr() + 4 * graph.num_graphs
        if self.run.program.values[value].rows == "atoms":
            return atoms, 0
        return (0, 0) if graph.code is not None else (atoms, graph.rowptr.data_ptr())
