"""The macros that specialise the matrix product kernels, and the list of kernels that a forward pass and its backward pass launch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.layer_network.call import PRECISIONS
from molgcn.ops.layer_network.early_launches import ALONE, early_grad_launches, early_launches
from molgcn.ops.layer_network.grad_launches_cuda import GradLaunch, backward_launches
from molgcn.ops.layer_network.gradient_steps import InputGrad, Product, WeightGrads
from molgcn.ops.layer_network.launches_cuda import Launch, again_launches, forward_launches, is_read_later
from molgcn.ops.layer_network.memory import FEW_ATOMS, stride_of
from molgcn.ops.layer_network.norm_parts import MOST_PARTS
from molgcn.ops.layer_network.passes import Pass, backward_steps
from molgcn.ops.layer_network.products_arguments import MAX_PRODUCTS
from molgcn.ops.layer_network.products_plan import RowBlocks, Widths, Work, row_blocks
from molgcn.ops.layer_network.program import signed_values
from molgcn.ops.layer_network.steps import ACTIVATIONS, AGGREGATIONS, Finish, Linear
from molgcn.ops.layer_network.weights_plan import Shape, WarpgroupWeightTile, WeightTile, weight_blocks

Macros = dict[str, int]

_NONE = dict.fromkeys(
    (
        *("GATHER", "AGGR", "BONDS", "GATHERED", "BEFORE", "BEFORE_NORM", "BEFORE_ACTIVATION", "BEFORE_DROPOUT", "BEFORE_ADD", "WRITTEN"),
        *("FIRST_MASK", "FIRST_DROPOUT", "MIDDLE_RELU", "MIDDLE_DROPOUT", "MIDDLE_ADD", "MIDDLE_MASK", "MIDDLE_SIGNS", "MIDDLE_OUT"),
        *("ADD_FIRST", "KEPT", "ACTIVATION", "DROPOUT", "ADD", "MASK", "SIGNS", "MOMENTS", "SUMS", "NEXT_ACTIVATION", "NEXT_DROPOUT"),
    ),
    0,
)
"""The macros of what precedes and follows products alone, as product_rows.cu explains them."""


def forward_product(run: Pass, launch: Launch, gpu: Gpu, *, again: bool) -> tuple[RowBlocks, Macros]:
    """Return how the products of a forward launch are divided, and the macros of product_rows.cu.

    Args:
        run: The pass.
        launch: The launch.
        gpu: The GPU.
        again: Whether a backward pass computes the launch again.
    """
    first, before, gather, then, after, leaves, beside, _, parts = launch
    last = launch.last
    assert isinstance(first, Linear)
    assert isinstance(last, Linear)
    ends = (last,) if after is None else (last, after)
    macros = {
        "ACTIVATION": int(last.relu) if after is None else ACTIVATIONS.index(after.activation),
        "DROPOUT": any(end.dropout is not None for end in ends),
        "ADD": any(end.add is not None and end.add not in run.summed for end in ends),
        "ADD_FIRST": last.add is not None and last.add not in run.summed,
        "SIGNS": _keeps_signs(run, last, again),
        "KEPT": after is not None and last.out not in run.signs_alone and is_read_later(run, last.out),
        "MOMENTS": leaves is not None,
    }
    if then is not None:
        macros |= {"MIDDLE_RELU": first.relu, "MIDDLE_DROPOUT": first.dropout is not None}
        macros |= {"MIDDLE_SIGNS": _keeps_signs(run, first, again), "MIDDLE_OUT": is_read_later(run, first.out)}
    if before is not None:
        macros |= {"BEFORE": 1, "WRITTEN": is_read_later(run, before.out), **_before_macros(before)}
    if gather is not None:
        macros |= {"GATHER": 1, "AGGR": AGGREGATIONS.index(gather.aggr)}
        macros |= {"BONDS": gather.bonds is not None, "GATHERED": is_read_later(run, gather.out)}
    sources = 2 if gather is None and before is not None and before.add is not None else 1
    work = Work(sources, before is not None and before.norm is not None, leaves is not None, bool(macros["ADD"]), gather is not None)
    arrays = 1 if beside is None else 2
    widths = Widths(run.width(first.source), 0 if then is None else run.width(first.out), run.width(last.out), arrays=arrays)
    if parts:
        widths = widths._replace(out=(1 + len(parts)) * stride_of(widths.out), part=widths.out)
    return _divided(run, first.source, widths, gpu, work, macros)


def _keeps_signs(run: Pass, step: Linear, again: bool) -> bool:
    """Return whether backward reads the signs of a value that a launch computes, in the forward pass or again in the backward pass."""
    return step.out in signed_values(run.program) and (again or step.out in run.kept)


def grad_product(run: Pass, launch: GradLaunch, gpu: Gpu) -> tuple[RowBlocks, Macros]:
    """Return how the products of a backward launch are divided, and the macros of product_rows.cu."""
    first, before, leaves, last = launch.step, launch.before, launch.leaves, launch.last
    assert isinstance(first, InputGrad)
    assert isinstance(last, InputGrad)
    two = last is not first and not launch.sums
    macros: Macros = {"ADD": launch.add is not None, "MASK": last.source.mask is not None, "SUMS": leaves is not None}
    if two:
        macros |= {"MIDDLE_ADD": first.source.add is not None, "MIDDLE_MASK": first.source.mask is not None, "MIDDLE_OUT": 1}
    if before is not None:
        macros |= {"BEFORE": 2, "WRITTEN": 1, **_before_macros(before.step)}
    if launch.mask is not None:
        macros |= {"FIRST_MASK": 1, "FIRST_DROPOUT": launch.mask.step.dropout is not None}
    if leaves is not None:
        macros |= {"NEXT_ACTIVATION": ACTIVATIONS.index(leaves.step.activation), "NEXT_DROPOUT": leaves.step.dropout is not None}
    norm, follows = before is not None and before.step.norm is not None, leaves is not None or launch.add is not None
    work = Work(1 if before is None else 2, norm, leaves is not None, follows)
    middle = run.width(first.source.value) if two else 0
    widths = Widths(run.width(first.step.out), middle, run.width(last.source.value), launch.beside is not None, 1 + len(launch.sums))
    return _divided(run, first.step.out, widths, gpu, work, macros)


def _before_macros(end: Finish) -> Macros:
    """Return the macros of the end of a layer through which rows are first taken."""
    return {
        "BEFORE_NORM": end.norm is not None,
        "BEFORE_ACTIVATION": ACTIVATIONS.index(end.activation),
        "BEFORE_DROPOUT": end.dropout is not None,
        "BEFORE_ADD": end.add is not None,
    }


def _divided(run: Pass, source: int, widths: Widths, gpu: Gpu, work: Work, macros: Macros) -> tuple[RowBlocks, Macros]:
    """Return the division of products of the rows of a value, and all macros."""
    most = MOST_PARTS if work.leaves and run.graph.num_nodes <= FEW_ATOMS else None
    plan = row_blocks(run.num_rows(source), widths, gpu, work, most)
    wanted = {name: int(value) for name, value in macros.items()}
    return plan, {**plan.defines, **_NONE, **wanted, "PRECISION": PRECISIONS.index(run.call.options.precision)}


def weights_macros(run: Pass, tile: WeightTile | WarpgroupWeightTile) -> Macros:
    """Return the macros of the kernel that computes gradients of weights in such tiles."""
    return {**tile.defines, "PRECISION": PRECISIONS.index(run.call.options.precision), "MAX_PRODUCTS": MAX_PRODUCTS}


def shapes_of(run: Pass, gradients: Sequence[int], products: Sequence[Product]) -> tuple[Shape, ...]:
    """Return the shapes of products, where `gradients` has the value that each gradient belongs to."""
    values = run.program.values
    return tuple(
        Shape(run.num_rows(value), values[value].width, 0 if product.source is None else values[product.source].width)
        for product, value in ((product, gradients[product.grad]) for product in products)
    )


def prefetch_kernels(run: Pass, gpu: Gpu) -> Iterator[tuple[str, Macros]]:
    """Yield the sources and macros of the products of a forward pass and of its backward pass, to compile them at the same time."""
    launches = forward_launches(run, gpu)
    beside = early_launches(run, launches)
    for launch in launches.values():
        if isinstance(launch.step, Linear):
            yield "product_rows.cu", forward_product(run, launch, beside.get(launch.step, ALONE).part_of(gpu), again=False)[1]
    if not run.call.options.save_for_backward:
        return
    backward = backward_steps(run.call, grad_x=run.graph.x.requires_grad, grad_bonds=run.graph.bonds is not None)
    for launch in again_launches(run, backward.steps).values():
        if isinstance(launch.step, Linear):
            yield "product_rows.cu", forward_product(run, launch, gpu, again=True)[1]
    grad_launches = backward_launches(run, backward.steps, gpu)
    beside = early_grad_launches(run, backward.steps, grad_launches)
    for grad_launch in grad_launches.values():
        step = grad_launch.step
        if isinstance(step, InputGrad):
            yield "product_rows.cu", grad_product(run, grad_launch, beside.get(step, ALONE).part_of(gpu))[1]
        elif isinstance(step, WeightGrads):
            for first in range(0, len(step.products), MAX_PRODUCTS):
                tile, _ = weight_blocks(shapes_of(run, backward.gradients, step.products[first : first + MAX_PRODUCTS]), gpu)
                yield f"{tile.kernel}.cu", weights_macros(run, tile)
