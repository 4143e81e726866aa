"""Fill in the numbers and addresses of the instructions of a launch on tiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from molgcn.ops.layer_network.gradient_steps import FinishGrad, GatherGrad, InputGrad
from molgcn.ops.layer_network.layouts import Ref
from molgcn.ops.layer_network.memory import stride_of
from molgcn.ops.layer_network.passes import Pass
from molgcn.ops.layer_network.products_cuda import TensorCoreProducts, Weights
from molgcn.ops.layer_network.products_plan import in_chunks
from molgcn.ops.layer_network.program import NORMS
from molgcn.ops.layer_network.steps import ACTIVATIONS, Finish, Gather, Linear
from molgcn.ops.layer_network.tiles_arguments import OPS
from molgcn.ops.layer_network.tiles_program import Instruction
from molgcn.ops.layer_network.tiles_sums import TileSums


class TileProducts(TensorCoreProducts):
    """Matrix products, and weights in the form that the kernels on tiles read."""

    def operand(self, name: str, *, transposed: bool) -> tuple[int, int]:
        """Return the addresses of a weight's fragments and scales as an operand of x W^T or, if `transposed`, of G W."""
        return (self._backward_operands if transposed else self._forward_operands)[Weights((name,))]

    def _forward_weights(self) -> Iterator[Weights]:
        return (Weights((step.weight,)) for step in self.run.program.steps if isinstance(step, Linear))

    def _backward_weights(self) -> Iterator[Weights]:
        return (Weights((step.step.weight,)) for step in self.run.backward.steps if isinstance(step, InputGrad))


class Resolver:
    """Fills in the instructions of one launch.

    Args:
        run: The pass.
        products: The weights of the pass.
        pooled: The pooled rows, or their gradient in a backward pass.
        sums: The sums of the launch.
    """

    def __init__(self, run: Pass, products: TileProducts, pooled: Tensor, sums: TileSums) -> None:
        self._run, self._products, self._pooled, self._sums = run, products, pooled, sums

    def fill(self, it: Any, made: Instruction) -> None:
        """Set all fields of an instruction."""
        it.op, it.slot, it.width, it.site = OPS.index(made.op), made.slot, made.width, -1
        step = made.step
        if made.rows is not None:
            it.rows = self._address(made.rows)
        if isinstance(step, Finish):
            self._finish(it, step)
        elif isinstance(step, FinishGrad):
            self._finish_grad(it, step)
        elif isinstance(step, (Linear, InputGrad)):
            self._linear(it, step)
        elif isinstance(step, Gather):
            self._gather(it, step)
        elif isinstance(step, GatherGrad):
            self._gather_grad(it, made, step)
        elif made.mask is not None:
            it.scale = self._run.mask_scale(made.mask)
        elif made.op in ("pool", "pool_grad"):
            it.rows = self._pooled.data_ptr()

    def _address(self, ref: Ref) -> int:
        return (self._run.gradient(ref.number) if ref.gradient else self._run.rows(ref.number)).address

    def _parameter(self, name: str | None) -> int:
        return 0 if name is None else self._run.parameter(name).data_ptr()

    def _gradient(self, name: str) -> int:
        """Return where the warps' sums for a parameter's gradient begin."""
        out = self._run.grad_parameters[name]
        return self._sums.add(out.data_ptr(), out.numel(), out.data_ptr() if self._run.adds_gradient(name) else 0)

    def _finish(self, it: Any, step: Finish) -> None:
        it.activation, it.site = ACTIVATIONS.index(step.activation), -1 if step.dropout is None else step.dropout
        if step.norm is None:
            return
        kind = self._run.program.norms[step.norm]
        it.kind, it.weight, it.bias = NORMS.index(kind), self._parameter(f"{step.norm}.weight"), self._parameter(f"{step.norm}.bias")
        if kind == "batch":
            it.more, it.extra = (tensor.data_ptr() for tensor in self._run.running(step.norm))

    def _finish_grad(self, it: Any, step: FinishGrad) -> None:
        self._finish(it, step.step)
        if step.step.norm is not None:
            it.sums = self._gradient(f"{step.step.norm}.bias")
            self._gradient(f"{step.step.norm}.weight")

    def _linear(self, it: Any, step: Linear | InputGrad) -> None:
        forward = step if isinstance(step, Linear) else step.step
        widths = [in_chunks(self._run.program.values[value].width) for value in (forward.source, forward.out)]
        it.weight, _ = self._products.operand(forward.weight, transposed=isinstance(step, InputGrad))
        if isinstance(step, InputGrad):
            it.chunks_out, it.chunks_in = widths
            return
        it.chunks_in, it.chunks_out = widths
        it.bias, it.activation = self._parameter(step.bias), int(step.relu)
        it.site = -1 if step.dropout is None else step.dropout

    def _gather(self, it: Any, step: Gather) -> None:
        it.weight, it.bias = self._parameter(step.eps), self._parameter(step.bias)
        if step.bonds is not None:
            it.more = self._run.rows(step.bonds).address

    def _gather_grad(self, it: Any, made: Instruction, step: GatherGrad) -> None:
        self._gather(it, step.step)
        it.bias = 0
        if made.op == "eps_grad" and step.step.eps is not None:
            it.sums = self._gradient(step.step.eps)
        if made.produced is None:
            return
        out, add = (0 if number is None else self._run.gradient(number).address for number in (made.produced.out, made.produced.add))
        if made.op == "table_grad":
            it.sums = self._sums.add(out, self._run.graph.num_bond_rows * stride_of(made.width), add)
        else:
            it.out, it.extra = out, add
