"""The steps of a network's forward pass, derived from its spec."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Literal, NamedTuple

from molgcn.ops.layer_network.spec import LayerNetworkSpec
from molgcn.ops.layer_network.steps import BONDS, Finish, Gather, Linear, Normalize, Step, Value, X, values_read


class Program(NamedTuple):
    """A network's forward pass up to the pooling.

    Attributes:
        values: The values that the steps read and compute, by number. The first two are the network's inputs.
        steps: The steps in the order of the network.
        ends: The number of steps up to the end of each layer.
        out: The value that is pooled.
    """

    values: tuple[Value, ...]
    steps: tuple[Step, ...]
    ends: tuple[int, ...]
    out: int


@cache
def program_of(spec: LayerNetworkSpec, dropout: bool) -> Program:
    """Return the forward pass of a network.

    Args:
        spec: The network.
        dropout: Whether dropout is active, that is in training with a probability above 0.
    """
    builder = _Builder(spec, dropout)
    h, ends = X, []
    for layer in range(spec.num_layers):
        h = builder.layer(layer, h)
        ends.append(len(builder.steps))
    return Program(tuple(builder.values), tuple(builder.steps), tuple(ends), h)


@cache
def masked_values(program: Program) -> frozenset[int]:
    """Return the products that a relu without norm at the end of a layer reads. Nothing else reads them."""
    products = {step.out for step in program.steps if isinstance(step, Linear) and step.add is None}
    ends = (step for step in program.steps if isinstance(step, Finish))
    return frozenset(step.source for step in ends if step.relu and step.norm is None) & products


@cache
def signed_values(program: Program) -> frozenset[int]:
    """Return the products whose signs the kernels keep as bits, for the gradients of relu: those before and after a relu."""
    return masked_values(program).union(step.out for step in program.steps if isinstance(step, Linear) and step.relu)


@cache
def biases_without_effect(program: Program, batch_norms: Sequence[str]) -> frozenset[str]:
    """Return the names of the biases that a norm with the statistics of the batch subtracts again with the mean.

    Args:
        program: The forward pass.
        batch_norms: The names of these norms.
    """
    read = [value for step in program.steps for value in values_read(step)]
    shifted: set[int | None] = {step.source for step in program.steps if isinstance(step, Finish) and step.norm in batch_norms}
    names = set[str | None]()
    for step in reversed(program.steps):
        linear = isinstance(step, (Gather, Linear)) and not getattr(step, "relu", False)
        if linear and step.out in shifted and read.count(step.out) == 1:
            names.add(getattr(step, "bias", None))
            shifted.add(getattr(step, "add", None))
    return frozenset(name for name in names if name is not None)


class _Builder:
    """Builds the steps layer by layer."""

    def __init__(self, spec: LayerNetworkSpec, dropout: bool) -> None:
        self.spec = spec
        self.values = [Value("atoms", spec.in_channels), Value("bonds", spec.edge_channels or 0)]
        self.steps: list[Step] = []
        self._dropout = dropout
        self._dropouts = 0

    def layer(self, layer: int, h: int) -> int:
        """Add a layer with its norm, relu, dropout, residual and feed-forward block, and return the value that it computes from `h`."""
        spec = self.spec
        y = getattr(self, f"_{spec.message}")(layer, h)
        norm = f"norms.{layer}" if spec.norm is not None and spec.activated(layer) else None
        add = h if spec.residual and self.values[h].width == spec.hidden_channels else None
        y = self._finish(y, norm, spec.activated(layer), add)
        return self._feed_forward(layer, y) if spec.feed_forward else y

    def _value(self, width: int, rows: Literal["atoms", "bonds"] = "atoms") -> int:
        self.values.append(Value(rows, width))
        return len(self.values) - 1

    def _gather(self, source: int, aggr: str, bonds: int | None = None, eps: str | None = None, bias: str | None = None) -> int:
        out = self._value(self.values[source].width)
        self.steps.append(Gather(source, out, aggr, bonds, eps, bias))
        return out

    def _linear(self, name: str, source: int, width: int, *, bias: str | None = "", relu: bool = False, add: int | None = None) -> int:
        """Add a product with `name`.weight, and return its value. The bias is `name`.bias unless another name, or None, is given."""
        out = self._value(width, self.values[source].rows)
        self.steps.append(Linear(source, out, f"{name}.weight", f"{name}.bias" if bias == "" else bias, relu, add=add))
        return out

    def _finish(self, source: int, norm: str | None, activated: bool, add: int | None = None, *, dropout: bool | None = None) -> int:
        """End a layer, and return its value. Without norm, what follows a matrix product becomes part of that step if possible."""
        last, site = self.steps[-1], self._site() if (activated if dropout is None else dropout) else None
        if norm is None and not activated and site is None and add is None:
            return source
        if norm is None and add is None and activated and isinstance(last, Linear) and last.add is None:
            self.steps[-1] = last._replace(relu=True, dropout=site)
            return source
        if norm is None and not activated and site is None and isinstance(last, Linear) and last.add is None:
            self.steps[-1] = last._replace(add=add)
            return source
        out = self._value(self.values[source].width)
        self.steps.append(Finish(source, out, norm, activated, site, add))
        return out

    def _site(self) -> int | None:
        if not self._dropout:
            return None
        self._dropouts += 1
        return self._dropouts - 1

    def _gcn(self, layer: int, h: int) -> int:
        gathered = self._gather(h, "gcn_loops" if self.spec.add_self_loops else "gcn")
        return self._linear(f"convs.{layer}.lin", gathered, self.spec.hidden_channels, bias=f"convs.{layer}.bias")

    def _gin(self, layer: int, h: int) -> int:
        return self._mlp(layer, self._gather(h, "sum", eps=f"convs.{layer}.eps"))

    def _gine(self, layer: int, h: int) -> int:
        bonds = self._bonds(f"convs.{layer}.lin", self.values[h].width)
        return self._mlp(layer, self._gather(h, "sum", bonds, f"convs.{layer}.eps"))

    def _gcn_edge(self, layer: int, h: int) -> int:
        hidden = self.spec.hidden_channels
        mapped = self._linear(f"convs.{layer}.lin", h, hidden, bias=None)
        return self._gather(mapped, "sum", self._bonds(f"convs.{layer}.lin_edge", hidden), bias=f"convs.{layer}.bias")

    def _sage(self, layer: int, h: int) -> int:
        spec, of = self.spec, f"convs.{layer}"
        neighbours = self._linear(f"{of}.lin", h, self.values[h].width, relu=True) if spec.project else h
        out = self._linear(f"{of}.lin_l", self._gather(neighbours, spec.aggr), spec.hidden_channels)
        if spec.root_weight:
            out = self._linear(f"{of}.lin_r", h, spec.hidden_channels, bias=None, add=out)
        if spec.normalize:
            self.steps.append(Normalize(out, self._value(spec.hidden_channels)))
            out += 1
        return out

    def _mlp(self, layer: int, m: int) -> int:
        spec, of = self.spec, f"convs.{layer}.nn"
        hidden = self._linear(f"{of}.0", m, spec.hidden_channels, relu=not spec.mlp_norm)
        if spec.mlp_norm:
            hidden = self._finish(hidden, f"{of}.1", activated=True, dropout=False)
        return self._linear(f"{of}.{3 if spec.mlp_norm else 2}", hidden, spec.hidden_channels)

    def _bonds(self, name: str, width: int) -> int:
        """Return the bonds' rows in the width of the atoms' rows, through the layer's own linear map if the widths differ."""
        return BONDS if self.values[BONDS].width == width else self._linear(name, BONDS, width)

    def _feed_forward(self, layer: int, h: int) -> int:
        spec, of = self.spec, f"feed_forwards.{layer}"
        normed = spec.feed_forward_norm is not None
        if normed:
            h = self._finish(h, f"{of}.norm1", activated=False)
        wide = self._linear(f"{of}.lin1", h, 2 * spec.hidden_channels)
        wide = self._finish(wide, None, activated=True)
        narrow = self._linear(f"{of}.lin2", wide, spec.hidden_channels)
        narrow = self._finish(narrow, None, activated=False, add=h, dropout=True)
        return self._finish(narrow, f"{of}.norm2", activated=False) if normed else narrow
