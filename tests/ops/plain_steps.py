"""The reference implementation of a network's steps, which the kernels are tested against: plain PyTorch, any dtype, any device.

Batches must have no padding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, singledispatchmethod

import torch
from gcn_reference import pool
from plain_edges import attended, expanded, gated, gathered, of_bonds, of_edges
from torch import Tensor
from torch.nn import functional as F

from molgcn.nn.activations import ACTIVATIONS
from molgcn.ops.layer_network.gradient_steps import (
    AddGrad,
    AttendGrad,
    EdgeGrad,
    ExpandGrad,
    FinishGrad,
    GateGrad,
    GatherGrad,
    GradStep,
    InputGrad,
    NormalizeGrad,
    PoolGrad,
    Produced,
    SpreadGrad,
    WeightGrads,
)
from molgcn.ops.layer_network.passes import Pass, Rows
from molgcn.ops.layer_network.steps import (
    Attend,
    EdgeStep,
    Expand,
    Finish,
    Gate,
    Gather,
    Linear,
    Spread,
    Step,
)
from molgcn.ops.philox import keep_mask


class PlainSteps:
    """The steps of a pass in plain PyTorch.

    Args:
        run: The pass.
    """

    signs_alone = False

    def __init__(self, run: Pass) -> None:
        self.run = run
        if run.is_backward:
            run.zero_gradients.zero_()

    def pad(self, given: Tensor, to: Rows) -> None:
        """Copy an input whose width is not a multiple of four."""
        to.tensor[:, to.width :] = 0
        to.values.copy_(given)

    def forward(self, step: Step) -> None:
        """Compute a step's value."""
        out = self.run.rows(step.out)
        out.tensor[:, out.width :] = 0
        if isinstance(step, Linear):
            return self._linear(step)
        names = ("source", "bonds", "add", "target", "gates")
        inputs = {name: self.run.rows(getattr(step, name)).values for name in names if getattr(step, name, None) is not None}
        if isinstance(step, Gather):
            out.values.copy_(gathered(self.run, step, **inputs, **self._named(step, "eps", "bias")))
        elif isinstance(step, Expand):
            out.values.copy_(expanded(self.run, step, **inputs))
        elif isinstance(step, Spread):
            out.values.copy_(of_bonds(self.run, step.source, **inputs))
        elif isinstance(step, Gate):
            out.values.copy_(gated(self.run, **inputs))
        elif isinstance(step, Attend):
            made, softmax = attended(self.run, step, **inputs, **self._named(step, "att", "att_target", "att_bonds", "bias"))
            out.values.copy_(made)
            self.run.rows(step.softmax).values.copy_(softmax)
        elif isinstance(step, EdgeStep):
            out.values.copy_(of_edges(self.run, step, **inputs))
        elif isinstance(step, Finish):
            add = inputs.pop("add", None)
            ended = self._finished(step, **inputs, **self._norm(step))
            out.values.copy_(ended if add is None else ended + add)
        else:
            out.values.copy_(F.normalize(inputs["source"], dim=-1))

    def pool(self, value: int, pooled: Tensor) -> None:
        """Compute the pooled rows of a value, `pooled` [B, H]."""
        rows, how = self.run.rows(value).values, self.run.program.pool
        pooled.copy_(rows if how == "none" else pool(rows, self.run.graph.ptr, how))

    def pool_grad(self, step: PoolGrad, grad_pooled: Tensor) -> None:
        """Compute the gradient of a value, given the gradient of its pooled rows, `grad_pooled` [B, H]."""
        program, value = self.run.program, step.source.value
        if program.pool == "none":
            return self._write(step.source, grad_pooled)
        width = program.hidden_channels
        rows = self.run.rows(value).values if program.pool == "max" else grad_pooled.new_zeros(self.run.graph.num_nodes, width)
        found = _gradients(lambda source: pool(source, self.run.graph.ptr, program.pool), grad_pooled, {"source": rows})
        self._write(step.source, found["source"])

    @singledispatchmethod
    def backward(self, step: GradStep) -> None:
        """Compute the gradients that a backward step describes."""
        raise TypeError(f"expected a backward step, got {step!r}")

    @backward.register
    def _(self, step: WeightGrads) -> None:
        for product in step.products:
            grad = self.run.gradient(product.grad).values
            if product.weight is not None and product.source is not None:
                self._of_parameter(product.weight, grad.T @ self.run.rows(product.source).values)
            if product.bias is not None:
                self._of_parameter(product.bias, grad.sum(0))

    def _of_parameter(self, name: str, gradient: Tensor) -> None:
        out = self.run.grad_parameters[name]
        out.copy_(out + gradient if self.run.adds_gradient(name) else gradient)

    @backward.register
    def _(self, step: InputGrad) -> None:
        self._write(step.source, self.run.gradient(step.grad).values @ self.run.parameter(step.step.weight))

    @backward.register
    def _(self, step: FinishGrad) -> None:
        inputs = {"source": self.run.rows(step.step.source).values, **self._norm(step.step)}
        found = _gradients(lambda **given: self._finished(step.step, **given), self.run.gradient(step.grad).values, inputs)
        self._write(step.source, found.pop("source"))
        for name, gradient in found.items():
            self.run.grad_parameters[f"{step.step.norm}.{name}"].copy_(gradient)

    @backward.register
    def _(self, step: GatherGrad) -> None:
        forward = step.step
        grad = self.run.gradient(step.grad).values
        kept = forward.source in self.run.backward.kept  # if not, the gradient does not depend on the source
        inputs = {"source": self.run.rows(forward.source).values if kept else torch.zeros_like(grad)}
        inputs |= {} if forward.bonds is None else {"bonds": self.run.rows(forward.bonds).values}
        inputs |= self._named(forward, "eps")
        found = _gradients(lambda **given: gathered(self.run, forward, **given), grad, inputs)
        for produced, name in ((step.source, "source"), (step.bonds, "bonds")):
            if produced is not None:
                self._write(produced, found[name])
        if forward.eps is not None and forward.train_eps:
            self._of_parameter(forward.eps, found["eps"])

    @backward.register
    def _(self, step: ExpandGrad) -> None:
        grad, forward = self.run.gradient(step.grad).values, step.step
        width, names = grad.shape[1], ("source", "bonds", "target")
        rows = {name: getattr(forward, name) for name in names if getattr(forward, name) is not None}
        inputs = {name: grad.new_zeros(self.run.num_rows(value), width) for name, value in rows.items()}
        found = _gradients(lambda **given: expanded(self.run, forward, **given), grad, inputs)
        for name in names:
            if getattr(step, name) is not None:
                self._write(getattr(step, name), found[name])

    @backward.register
    def _(self, step: SpreadGrad) -> None:
        grad = self.run.gradient(step.grad).values
        inputs = {"source": grad.new_zeros(self.run.graph.num_bond_rows, grad.shape[1])}
        found = _gradients(lambda source: of_bonds(self.run, step.step.source, source), grad, inputs)
        self._write(step.source, found["source"])

    @backward.register
    def _(self, step: GateGrad) -> None:
        inputs = {name: self.run.rows(getattr(step.step, name)).values for name in ("source", "gates")}
        found = _gradients(lambda **given: gated(self.run, **given), self.run.gradient(step.grad).values, inputs)
        for name in inputs:
            if getattr(step, name) is not None:
                self._write(getattr(step, name), found[name])

    @backward.register
    def _(self, step: EdgeGrad) -> None:
        grad = self.run.gradient(step.grad).values
        inputs = {"source": grad.new_zeros(self.run.graph.col.shape[0], grad.shape[1])}
        self._write(step.source, _gradients(lambda source: of_edges(self.run, step.step, source), grad, inputs)["source"])

    @backward.register
    def _(self, step: AttendGrad) -> None:
        forward, grad = step.step, self.run.gradient(step.grad).values
        names = ("source", "target", "bonds")
        inputs = {name: self.run.rows(getattr(forward, name)).values for name in names if getattr(forward, name) is not None}
        vectors = self._named(forward, "att", "att_target", "att_bonds")
        found = _gradients(lambda **given: attended(self.run, forward, **given)[0], grad, inputs | vectors)
        for name in ("target", "bonds", "source"):
            if (produced := getattr(step, name)) is not None:
                self._write(produced, found[name])
        for name in vectors:
            self._of_parameter(getattr(forward, name), found[name])

    @backward.register
    def _(self, step: AddGrad) -> None:
        self._write(step.source, self.run.gradient(step.grad).values)

    @backward.register
    def _(self, step: NormalizeGrad) -> None:
        inputs = {"source": self.run.rows(step.step.source).values}
        found = _gradients(lambda source: F.normalize(source, dim=-1), self.run.gradient(step.grad).values, inputs)
        self._write(step.source, found["source"])

    def _linear(self, step: Linear) -> None:
        bias = None if step.bias is None else self.run.parameter(step.bias)
        out = F.linear(self.run.rows(step.source).values, self.run.parameter(step.weight), bias)
        out = out.relu() if step.relu else out
        out = out if step.dropout is None else self._dropped(out, step.dropout)
        self.run.rows(step.out).values.copy_(out if step.add is None else out + self.run.rows(step.add).values)

    def _finished(self, step: Finish, source: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        out, program = source, self.run.program
        if step.norm is not None and program.norms[step.norm] == "layer":
            out = F.layer_norm(out, out.shape[1:], weight, bias, program.eps)
        elif step.norm is not None and self.run.call.options.training:
            out = F.batch_norm(out, *self._statistics(step.norm, source), weight, bias, True, program.momentum, program.eps)
        elif step.norm is not None:
            out = F.batch_norm(out, *self.run.running(step.norm), weight, bias, False, program.momentum, program.eps)
        out = ACTIVATIONS[step.activation]()(out) if step.activation else out
        return out if step.dropout is None else self._dropped(out, step.dropout)

    def _statistics(self, norm: str, source: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Return the running statistics that PyTorch updates in place, or None in a backward pass."""
        if not self.run.call.statistics:
            return None, None
        with torch.no_grad():
            variance, mean = torch.var_mean(source, 0, correction=0)
            self.run.moments(norm).copy_(torch.stack([mean, (variance + self.run.program.eps).rsqrt()]))
            for new, old in zip(self.run.new_running(norm), self.run.running(norm), strict=True):
                new.copy_(old)
        return self.run.new_running(norm)

    def _dropped(self, rows: Tensor, site: int) -> Tensor:
        rate = self.run.call.program.dropout
        return rows * _kept(int(self.run.call.seed), site, *rows.shape, rate).to(rows.device) / (1 - rate)

    def _named(self, step: Step, *names: str) -> dict[str, Tensor]:
        return {name: self.run.parameter(getattr(step, name)) for name in names if getattr(step, name) is not None}

    def _norm(self, step: Finish) -> dict[str, Tensor]:
        return {} if step.norm is None else {name: self.run.parameter(f"{step.norm}.{name}") for name in ("weight", "bias")}

    def _write(self, produced: Produced, gradient: Tensor) -> None:
        """Write a gradient, plus the one from later steps of the network, times the derivative of the mask."""
        if produced.add is not None:
            gradient = gradient + self.run.gradient(produced.add).values
        if produced.mask is not None:
            scale = self.run.mask_scale(produced.mask)
            gradient = gradient * (self.run.rows(produced.value).values > 0) * scale
        out = self.run.gradient(produced.out)
        out.tensor[:, out.width :] = 0
        out.values.copy_(gradient)


@lru_cache(maxsize=256)  # both passes of many networks have the same
def _kept(seed: int, site: int, num_nodes: int, channels: int, rate: float) -> Tensor:
    return keep_mask(torch.tensor([seed]), site, num_nodes, channels, rate)


def _gradients(function: Callable[..., Tensor], grad: Tensor, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the gradients of a function with respect to its named inputs."""
    with torch.enable_grad():
        leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in inputs.items()}
        out = function(**leaves)
    found = torch.autograd.grad(out, list(leaves.values()), grad, allow_unused=True)
    return {name: torch.zeros_like(inputs[name]) if each is None else each for name, each in zip(leaves, found, strict=True)}
