"""The macros that specialise the matrix product kernels, and the list of kernels that a forward pass and its backward pass launch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from molgcn.cuda_runtime.launch import Gpu
from molgcn.ops.layer_network.call import PRECISIONS
from molgcn.ops.layer_network.grad_launches_cuda import GradLaunch, backward_launches
from molgcn.ops.layer_network.gradient_steps import FinishGrad, InputGrad, Product, WeightGrads
from molgcn.ops.layer_network.launches_cuda import Launch, again_launches, forward_launches, is_read_later
from molgcn.ops.layer_network.memory import FEW_ATOMS, stride_of
from molgcn.ops.layer_network.norm_parts import MOST_PARTS
from molgcn.ops.layer_network.passes import Pass, backward_steps
from molgcn.ops.layer_network.products_arguments import MAX_PRODUCTS
from molgcn.ops.layer_network.products_plan import RowBlocks, Widths, Work, row_blocks
from molgcn.ops.layer_network.program import signed_values
from molgcn.ops.layer_network.steps import ACTIVATIONS, AGGREGATIONS, Finish, Gather, Linear
from molgcn.ops.layer_network.weights_plan import Shape, WarpgroupWeightTile, WeightTile, weight_blocks

Macros = dict[str, int]


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
        "MASK": False,
        "MIDDLE_RELU": then is not None and first.relu,
        "MIDDLE_DROPOUT": then is not None and first.dropout is not None,
        "MIDDLE_ADD": False,
        "MIDDLE_MASK": False,
        "SIGNS": _keeps_signs(run, last, again),
        "MIDDLE_SIGNS": then is not None and _keeps_signs(run, first, again),
        "MIDDLE_OUT": then is not None and is_read_later(run, first.out),
        "KEPT": after is not None and last.out not in run.signs_alone and is_read_later(run, last.out),
        "WRITTEN": before is not None and is_read_later(run, before.out),
        "MOMENTS": leaves is not None,
        "SUMS": False,
        "BEFORE": 0 if before is None else 1,
        **_first_macros(None),
        **_before_macros(before),
        **_gather_macros(run, gather),
        **_next_macros(None),
    }
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
    macros = {
        "ACTIVATION": 0,
        "DROPOUT": False,
        "ADD": launch.add is not None,
        "ADD_FIRST": False,
        "MASK": last.source.mask is not None,
        "MIDDLE_RELU": False,
        "MIDDLE_DROPOUT": False,
        "MIDDLE_ADD": two and first.source.add is not None,
        "MIDDLE_MASK": two and first.source.mask is not None,
        "SIGNS": False,
        "MIDDLE_SIGNS": False,
        "MIDDLE_OUT": two,
        "KEPT": False,
        "WRITTEN": before is not None,
        "MOMENTS": False,
        "SUMS": leaves is not None,
        "BEFORE": 0 if before is None else 2,
        **_first_macros(launch.mask),
        **_before_macros(None if before is None else before.step),
        **_gather_macros(run, None),
        **_next_macros(None if leaves is None else leaves.step),
    }
    norm, follows = before is not None and before.step.norm is not None, leaves is not None or launch.add is not None
    work = Work(1 if before is None else 2, norm, leaves is not None, follows)
    middle = run.width(first.source.value) if two else 0
    widths = Widths(run.width(first.step.out), middle, run.width(last.source.value), launch.beside is not None, 1 + len(launch.sums))
    return _divided(run, first.step.out, widths, gpu, work, macros)


def _before_macros(end: Finish | None) -> dict[str, int]:
    """Return the macros of the end of a layer through which rows are first taken."""
    return {
        "BEFORE_NORM": end is not None and end.norm is not None,
        "BEFORE_ACTIVATION": 0 if end is None else ACTIVATIONS.index(end.activation),
        "BEFORE_DROPOUT": end is not None and end.dropout is not None,
        "BEFORE_ADD": end is not None and end.add is not None,
    }


def _gather_macros(run: Pass, gather: Gather | None) -> dict[str, int]:
    """Return the macros of a gather whose result is multiplied."""
    if gather is None:
        return {"GATHER": 0, "AGGR": 0, "BONDS": 0, "GATHERED": 0}
    bonds, gathered = gather.bonds is not None, is_read_later(run, gather.out)
    return {"GATHER": 1, "AGGR": AGGREGATIONS.index(gather.aggr), "BONDS": bonds, "GATHERED": gathered}


def _first_macros(mask: FinishGrad | None) -> dict[str, bool]:
    """Return the macros of the relu and dropout, at the end of a layer without norm, through which gradients are taken."""
    return {"FIRST_MASK": mask is not None, "FIRST_DROPOUT": mask is not None and mask.step.dropout is not None}


def _next_macros(end: Finish | None) -> dict[str, int]:
    """Return the macros of the end of a layer for whose norm sums are left."""
    return {
        "NEXT_ACTIVATION": 0 if end is None else ACTIVATIONS.index(end.activation),
        "NEXT_DROPOUT": end is not None and end.dropout is not None,
    }


def _divided(run: Pass, source: int, widths: Widths, gpu: Gpu, work: Work, macros: dict[str, Any]) -> tuple[RowBlocks, Macros]:
    """Return the division of products of the rows of a value, and all macros."""
    most = MOST_PARTS if work.leaves and run.graph.num_nodes <= FEW_ATOMS else None
    plan = row_blocks(run.num_rows(source), widths, gpu, work, most)
    wanted = {name: int(value) for name, value in macros.items()}
    return plan, {**plan.defines, **wanted, "PRECISION": PRECISIONS.index(run.call.options.precision)}


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
    for launch in forward_launches(run, gpu).values():
        if isinstance(launch.step, Linear):
            yield "product_rows.cu", forward_product(run, launch, gpu, again=False)[1]
    if not run.call.options.save_for_backward:
        return
    backward = backward_steps(run.call, grad_x=run.graph.x.requires_grad, grad_bonds=run.graph.bonds is not None)
    for launch in again_launches(run, backward.steps).values():
        if isinstance(launch.step, Linear):
            yield "product_rows.cu", forward_product(run, launch, gpu, again=True)[1]
    for grad_launch in backward_launches(run, backward.steps, gpu).values():
        step = grad_launch.step
        if isinstance(step, InputGrad):
            yield "product_rows.cu", grad_product(run, grad_launch, gpu)[1]
        elif isinstance(step, WeightGrads):
            for first in range(0, len(step.products), MAX_PRODUCTS):
                tile, _ = weight_blocks(shapes_of(run, backward.gradients, step.products[first : first + MAX_PRODUCTS]), gpu)
                yield f"{tile.kernel}.cu", weights_macros(run, tile)
