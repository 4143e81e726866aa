"""The macros that specialise the matrix product kernels, and the list of kernels that a forward pass and its backward pass launch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.layer_network.backward import InputGrad, Product, WeightGrads
from molgcn.ops.layer_network.passes import Pass, backward_steps
from molgcn.ops.layer_network.products_arguments import MAX_PRODUCTS
from molgcn.ops.layer_network.products_plan import RowBlocks, Shape, row_blocks, weight_blocks
from molgcn.ops.layer_network.rows_finish_cuda import Cluster
from molgcn.ops.layer_network.steps import Finish, Linear, Step
from molgcn.ops.message_network import PRECISIONS

Macros = dict[str, int]


class Follows(NamedTuple):
    """The operations that follow a matrix product in the same launch.

    Attributes:
        relu: Whether relu follows.
        dropout: Whether dropout follows.
        add: Whether another value or gradient is added.
        mask: Whether the result is multiplied by the derivative of relu and dropout.
        moments: Whether the moments of the next norm are computed.
    """

    relu: bool = False
    dropout: bool = False
    add: bool = False
    mask: bool = False
    moments: bool = False

    @staticmethod
    def linear(run: Pass, step: Linear, norm: str | None) -> Follows:
        """Return what follows a step's product, where `norm` is the norm of the next step."""
        moments = norm in run.spec.batch_norms and run.call.batch_statistics
        return Follows(step.relu, step.dropout is not None, step.add is not None, moments=moments)

    @staticmethod
    def input_grad(step: InputGrad) -> Follows:
        """Return what follows the product that computes a gradient."""
        return Follows(add=step.source.add is not None, mask=step.source.mask is not None)


def norm_after(run: Pass, step: Linear, following: Step | None) -> str | None:
    """Return the norm of the next step if it reads this step's value and its moments would otherwise need another launch."""
    if not isinstance(following, Finish) or following.source != step.out or Cluster.of(run) is not None:
        return None
    return following.norm


def num_rows(run: Pass, value: int) -> int:
    """Return how many rows a value has, including padding."""
    return run.graph.num_nodes if run.program.values[value].rows == "atoms" else run.graph.num_bond_rows


def rows_plan(run: Pass, source: int, out: int, gpu: Gpu) -> RowBlocks:
    """Return how the product from value `source` to value `out`, or between their gradients, is divided."""
    values = run.program.values
    return row_blocks(num_rows(run, source), values[source].width, values[out].width, gpu)


def rows_macros(run: Pass, plan: RowBlocks, follows: Follows) -> Macros:
    """Return the macros of product_rows.cu."""
    wanted = {name.upper(): int(value) for name, value in follows._asdict().items()}
    return {**plan.defines, **wanted, "PRECISION": PRECISIONS.index(run.call.options.precision)}


def weights_macros(run: Pass, tile: int) -> Macros:
    """Return the macros of product_weights.cu."""
    return {"PRECISION": PRECISIONS.index(run.call.options.precision), "TILE": tile, "MAX_PRODUCTS": MAX_PRODUCTS}


def shapes_of(run: Pass, gradients: Sequence[int], products: Sequence[Product]) -> tuple[Shape, ...]:
    """Return the shapes of products, where `gradients` has the value that each gradient belongs to."""
    values = run.program.values
    return tuple(
        Shape(num_rows(run, value), values[value].width, 0 if product.source is None else values[product.source].width)
        for product, value in ((product, gradients[product.grad]) for product in products)
    )


def prefetch_kernels(run: Pass, gpu: Gpu) -> Iterator[tuple[str, Macros]]:
    """Yield the sources and macros of the products of a forward pass and of its backward pass, to compile them at the same time."""
    steps = run.program.steps
    for step, following in zip(steps, (*steps[1:], None), strict=True):
        if isinstance(step, Linear):
            follows = Follows.linear(run, step, norm_after(run, step, following))
            yield "product_rows.cu", rows_macros(run, rows_plan(run, step.source, step.out, gpu), follows)
    if not run.call.options.save_for_backward:
        return
    backward = backward_steps(run.call, grad_x=run.graph.x.requires_grad, grad_bonds=run.graph.bonds is not None)
    for grad_step in backward.steps:
        if isinstance(grad_step, Linear):
            plan = rows_plan(run, grad_step.source, grad_step.out, gpu)
            yield "product_rows.cu", rows_macros(run, plan, Follows.linear(run, grad_step, None))
        elif isinstance(grad_step, InputGrad):
            plan = rows_plan(run, grad_step.step.out, grad_step.step.source, gpu)
            yield "product_rows.cu", rows_macros(run, plan, Follows.input_grad(grad_step))
        elif isinstance(grad_step, WeightGrads):
            for first in range(0, len(grad_step.products), MAX_PRODUCTS):
                some = grad_step.products[first : first + MAX_PRODUCTS]
                yield "product_weights.cu", weights_macros(run, weight_blocks(shapes_of(run, backward.gradients, some), gpu)[0].tile)
