"""The matrix products of a pass by cuBLAS, for float64 and for widths that the project's kernels do not support."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from molgcn.ops.layer_network.grad_launches_cuda import GradLaunch
from molgcn.ops.layer_network.gradient_steps import InputGrad, WeightGrads
from molgcn.ops.layer_network.launches_cuda import Launch
from molgcn.ops.layer_network.passes import Pass
from molgcn.ops.layer_network.steps import Linear
from molgcn.ops.philox import keep_mask


class CublasProducts:
    """The matrix products of a pass by cuBLAS.

    Args:
        run: The pass. In its gradients, rows of padding are zeros.
    """

    def __init__(self, run: Pass) -> None:
        self.run = run

    def linear(self, launch: Launch) -> None:
        """Compute the value of a launch, which is one :class:`Linear` step."""
        step = launch.step
        assert isinstance(step, Linear)
        run, out = self.run, self.run.rows(step.out)
        bias = None if step.bias is None else run.parameter(step.bias)
        made = F.linear(run.rows(step.source).values, run.parameter(step.weight), bias)
        if step.add is not None:
            made += run.rows(step.add).values
        if step.relu:
            made.relu_()
        if step.dropout is not None:
            made *= keep_mask(run.call.seed, step.dropout, made.shape[0], made.shape[1], run.call.program.dropout)
            made /= 1 - run.call.program.dropout  # not the mask, whose quotient would be float32
        out.tensor[:, out.width :] = 0
        out.values.copy_(self._without_padding(made, run.program.values[step.out].rows))

    def input_grad(self, launch: GradLaunch) -> None:
        """Compute the gradient of the source of a launch, which is one :class:`InputGrad` step."""
        step = launch.step
        assert isinstance(step, InputGrad)
        run, source = self.run, step.source
        made = run.gradient(step.grad).values @ run.parameter(step.step.weight)
        if source.add is not None:
            made += run.gradient(source.add).values
        if source.mask is not None:
            made *= run.rows(source.value).values > 0
            if source.mask.dropout is not None:
                made /= 1 - run.call.program.dropout
        out = run.gradient(source.out)
        out.tensor[:, out.width :] = 0
        out.values.copy_(made)

    def weight_grads(self, step: WeightGrads) -> None:
        """Compute the gradients of weights and biases."""
        run = self.run
        for product in step.products:
            grad = run.gradient(product.grad).values
            if product.weight is not None and product.source is not None:
                source = self._without_padding(run.rows(product.source).values, run.program.values[product.source].rows)
                out = run.grad_parameters[product.weight]
                out.addmm_(grad.T, source, beta=float(run.adds_gradient(product.weight)))
            if product.bias is not None:
                out = run.grad_parameters[product.bias]
                torch.add(out, grad.sum(0), out=out) if run.adds_gradient(product.bias) else torch.sum(grad, 0, out=out)

    def _without_padding(self, rows: Tensor, kind: str) -> Tensor:
        """Return the rows with zeros in the padding, which may hold anything: NaN times a gradient of 0 would be NaN."""
        graph = self.run.graph
        atoms = graph.ptr[-1:]
        if kind == "bonds" and graph.code is not None:
            return rows
        count = atoms if kind == "atoms" else graph.rowptr.index_select(0, atoms)
        return rows.masked_fill((torch.arange(rows.shape[0], device=rows.device) >= count)[:, None], 0)
