"""The reference implementation of a network's steps, which the kernels are tested against: plain PyTorch, any dtype, any device.

Batches must have no padding.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import singledispatchmethod

import torch
from torch import Tensor
from torch.nn import functional as F

from molgcn.nn.activations import ACTIVATIONS
from molgcn.nn.layers.propagate import max_incoming, mean_incoming, reverse_bonds, sum_incoming
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
    GATE_EPSILON,
    Attend,
    AverageDirections,
    EdgeStep,
    Expand,
    Finish,
    Gate,
    Gather,
    Linear,
    Spread,
    Step,
    SumIncoming,
)
from molgcn.ops.message_network_reference import normalised_edges, pool
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
            out.values.copy_(self._gathered(step, **inputs, **self._named(step, "eps", "bias")))
        elif isinstance(step, Expand):
            out.values.copy_(self._expanded(step, **inputs))
        elif isinstance(step, Spread):
            out.values.copy_(self._of_bonds(step.source, **inputs))
        elif isinstance(step, Gate):
            out.values.copy_(self._gated(**inputs))
        elif isinstance(step, Attend):
            made, softmax = self._attended(step, **inputs, **self._named(step, "att", "att_target", "att_bonds", "bias"))
            out.values.copy_(made)
            self.run.rows(step.softmax).values.copy_(softmax)
        elif isinstance(step, EdgeStep):
            out.values.copy_(self._of_edges(step, **inputs))
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

    def again(self, step: Step) -> None:
        """Compute a step's value again in a backward pass."""
        self.forward(step)

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
        found = _gradients(lambda **given: self._gathered(forward, **given), grad, inputs)
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
        found = _gradients(lambda **given: self._expanded(forward, **given), grad, inputs)
        for name in names:
            if getattr(step, name) is not None:
                self._write(getattr(step, name), found[name])

    @backward.register
    def _(self, step: SpreadGrad) -> None:
        grad = self.run.gradient(step.grad).values
        inputs = {"source": grad.new_zeros(self.run.graph.num_bond_rows, grad.shape[1])}
        found = _gradients(lambda source: self._of_bonds(step.step.source, source), grad, inputs)
        self._write(step.source, found["source"])

    @backward.register
    def _(self, step: GateGrad) -> None:
        inputs = {name: self.run.rows(getattr(step.step, name)).values for name in ("source", "gates")}
        found = _gradients(self._gated, self.run.gradient(step.grad).values, inputs)
        for name in inputs:
            if getattr(step, name) is not None:
                self._write(getattr(step, name), found[name])

    @backward.register
    def _(self, step: EdgeGrad) -> None:
        grad = self.run.gradient(step.grad).values
        inputs = {"source": grad.new_zeros(self.run.graph.col.shape[0], grad.shape[1])}
        self._write(step.source, _gradients(lambda source: self._of_edges(step.step, source), grad, inputs)["source"])

    @backward.register
    def _(self, step: AttendGrad) -> None:
        forward, grad = step.step, self.run.gradient(step.grad).values
        names = ("source", "target", "bonds")
        inputs = {name: self.run.rows(getattr(forward, name)).values for name in names if getattr(forward, name) is not None}
        vectors = self._named(forward, "att", "att_target", "att_bonds")
        found = _gradients(lambda **given: self._attended(forward, **given)[0], grad, inputs | vectors)
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

    @property
    def _edges(self) -> Tensor:
        """The source and target of every directed bond, int64 [2, E]."""
        rowptr, col = self.run.graph.rowptr.long(), self.run.graph.col.long()
        return torch.stack([col, torch.arange(rowptr.shape[0] - 1, device=col.device).repeat_interleave(rowptr.diff())])

    def _expanded(self, step: Expand, source: Tensor, bonds: Tensor | None = None, target: Tensor | None = None) -> Tensor:
        edges = self._edges
        out = source[edges[0]] if target is None else source[edges[0]] + target[edges[1]]
        return out if step.bonds is None or bonds is None else out + self._of_bonds(step.bonds, bonds)

    def _of_edges(self, step: EdgeStep, source: Tensor) -> Tensor:
        edges, num_atoms = self._edges, self.run.graph.num_nodes
        reverse = source[reverse_bonds(edges, num_atoms)]
        if isinstance(step, AverageDirections):
            return (source + reverse) / 2
        incoming = sum_incoming(source, edges[1], num_atoms)
        return incoming if isinstance(step, SumIncoming) else incoming[edges[0]] - reverse

    def _attended(
        self,
        step: Attend,
        source: Tensor,
        att: Tensor,
        target: Tensor | None = None,
        att_target: Tensor | None = None,
        bonds: Tensor | None = None,
        att_bonds: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the value of a step that attends, and each softmax's largest score and the reciprocal of its sum, in turn."""
        graph, edges = self.run.graph, self._edges
        number = torch.arange(edges.shape[1], device=edges.device)[edges[0] != edges[1]]
        edges, atoms = edges[:, number], torch.arange(source.shape[0], device=edges.device)
        of, by = torch.cat([edges[0], atoms]), torch.cat([edges[1], atoms])
        heads = step.heads
        h = source.view(source.shape[0], heads, -1)
        if bonds is not None:
            rows = (bonds if graph.code is None else bonds[graph.code.long()])[number]
            bonds = torch.cat([rows, mean_incoming(rows, edges[1], source.shape[0])]).view(of.shape[0], heads, -1)
        if target is not None:
            pre = h[of] + target.view_as(h)[by] + (0 if bonds is None else bonds)
            score = (F.leaky_relu(pre, step.slope) * att).sum(-1)
        else:
            pre = (h * att).sum(-1)[of] + (h * att_target).sum(-1)[by] + (0 if bonds is None else (bonds * att_bonds).sum(-1))
            score = F.leaky_relu(pre, step.slope)
        largest = max_incoming(score, by, source.shape[0])
        weight = (score - largest[by]).exp()
        scale = 1 / sum_incoming(weight, by, source.shape[0])
        weight = weight * scale[by]
        if step.dropout is not None:
            seed, rate = self.run.call.seed, step.rate
            masks = [
                keep_mask(seed, step.dropout, count, heads, rate, kind=kind) for kind, count in enumerate((graph.col.shape[0], h.shape[0]))
            ]
            weight = weight * torch.cat([masks[0][number], masks[1]]) / (1 - rate)
        out = sum_incoming(weight[:, :, None] * h[of], by, source.shape[0])
        out = out.flatten(1) if step.concat else out.mean(1)
        return out if bias is None else out + bias, torch.stack([largest, scale], dim=-1).flatten(1)

    def _of_bonds(self, value: int, source: Tensor) -> Tensor:
        """Return the row of every directed bond of a value with rows of bonds or edges."""
        code = self.run.graph.code if self.run.program.values[value].rows == "bonds" else None
        return source if code is None else source[code.long()]

    def _gated(self, source: Tensor, gates: Tensor) -> Tensor:
        (start, end), count = self._edges, self.run.graph.num_nodes
        weights = gates.sigmoid()
        return sum_incoming(weights * source[start], end, count) / (sum_incoming(weights, end, count) + GATE_EPSILON)

    def _gathered(
        self, step: Gather, source: Tensor, bonds: Tensor | None = None, eps: Tensor | None = None, bias: Tensor | None = None
    ) -> Tensor:
        graph, size = self.run.graph, source.shape[0]
        from_atom, to_atom, weight = normalised_edges(graph.rowptr, graph.col, step.aggr == "gcn_loops", source.dtype)
        message = source[from_atom]
        if bonds is not None:
            message = (message + (bonds if graph.code is None else bonds[graph.code.long()])).relu()
        message = weight[:, None] * message if step.aggr.startswith("gcn") else message
        index = to_atom[:, None].expand_as(message)
        out = torch.zeros_like(source)
        if step.aggr == "max":
            out = out.scatter_reduce(0, index, message, "amax", include_self=False)
        else:
            out = out.index_add(0, to_atom, message)
        if step.aggr == "mean":
            out = out / torch.bincount(to_atom, minlength=size).clamp(min=1)[:, None]
        out = out if eps is None else out + (1 + eps) * source
        return out if bias is None else out + bias

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
        return rows * keep_mask(self.run.call.seed, site, rows.shape[0], rows.shape[1], rate) / (1 - rate)

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


def _gradients(function: Callable[..., Tensor], grad: Tensor, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the gradients of a function with respect to its named inputs."""
    with torch.enable_grad():
        leaves = {name: tensor.detach().clone().requires_grad_() for name, tensor in inputs.items()}
        out = function(**leaves)
    found = torch.autograd.grad(out, list(leaves.values()), grad, allow_unused=True)
    return {name: torch.zeros_like(inputs[name]) if each is None else each for name, each in zip(leaves, found, strict=True)}
