"""Compare gradients of weights whose columns have different sizes with float64."""

from __future__ import annotations

import torch
from pass_values import fill
from products_cases import kernels_of, saved_of
from torch import Tensor

from molgcn.ops.layer_network.call import LayerNetworkCall
from molgcn.ops.layer_network.gradient_steps import WeightGrads
from molgcn.ops.layer_network.passes import Pass


def worst_weight(call: LayerNetworkCall, sizes: Tensor) -> float:
    """Return the largest error of an element of a weight's gradient, relative to its columns, which have these sizes in turn."""
    run = Pass(call, saved_of(call), backward=True, signs_alone=True, grad_x=True, grad_bonds=True)
    _, products, sums = kernels_of(run)
    worst = 0.0
    for step in run.backward.steps:
        for product in step.products if isinstance(step, WeightGrads) else ():
            if product.weight is None or product.source is None:
                continue
            columns = []
            for rows in (run.gradient(product.grad), run.rows(product.source)):
                values = fill(run, rows, "atoms", even=True)
                rows.values[: len(values)] *= sizes.to(values)[torch.arange(rows.width) % len(sizes)]
                columns.append(rows.values[: len(values)].double())
            products.weight_grads(WeightGrads((product,)))
            sums.launch()
            grad, x = columns
            errors = (run.grad_parameters[product.weight].double() - grad.T @ x).abs()
            worst = max(worst, float((errors / grad.norm(dim=0)[:, None] / x.norm(dim=0)).max()))
    return worst
