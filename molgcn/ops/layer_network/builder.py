"""Build the program of a network step by step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from molgcn.ops.layer_network.program import Program
from molgcn.ops.layer_network.steps import (
    BONDS,
    Attend,
    AverageDirections,
    Expand,
    Finish,
    Gate,
    Gather,
    Linear,
    Normalize,
    Rows,
    Spread,
    Step,
    SumIncoming,
    SumNonBacktracking,
    Value,
)


class Builder:
    """Adds the steps of a network, layer after layer. Each returns the number of the value that it computes.

    Parameters have the names that they have in the state dict of the network: :attr:`scope`, and the name that a step is given.

    Args:
        in_channels: The number of columns of the atoms' rows.
        edge_channels: The number of columns of the bonds' rows, or None without them.
        dropout: The probability of dropout, 0 outside training.
        training: Whether layers drop what they drop by probabilities of their own.

    Attributes:
        scope: What the names of parameters and norms begin with, such as "convs.0.".
        bonds: The present states of the bonds: the network's input, or those that the layer before has computed.
    """

    def __init__(self, in_channels: int, edge_channels: int | None, dropout: float, *, training: bool = False) -> None:
        self.scope, self.bonds = "", BONDS
        self._training = training
        self._values = [Value("atoms", in_channels), Value("bonds", edge_channels or 0)]
        self._steps: list[Step] = []
        self._ends: list[int] = []
        self._parameters: dict[str, tuple[int, ...]] = {}
        self._norms: dict[str, str] = {}
        self._dropout = dropout
        self._dropouts = 0

    def width(self, value: int) -> int:
        """Return the number of columns of a value."""
        return self._values[value].width

    def rows(self, value: int) -> Rows:
        """Return what the rows of a value belong to."""
        return self._values[value].rows

    def gather(
        self, source: int, aggr: str = "sum", *, bonds: int | None = None, eps: str = "", train_eps: bool = False, bias: str = ""
    ) -> int:
        """Aggregate the messages of the neighbours, as :class:`molgcn.ops.layer_network.steps.Gather` says.

        Args:
            source: The atoms' rows.
            aggr: One of :data:`molgcn.ops.layer_network.steps.AGGREGATIONS`.
            bonds: The bonds' rows that are added to the neighbours' before a relu, in the width of `source`; or None.
            eps: The name of eps, for the atom itself times 1 + eps; "" to leave it out.
            train_eps: Whether eps is learnt.
            bias: The name of a bias; "" for none.
        """
        width = self.width(source)
        named_eps, named_bias = self._parameter(eps, 1), self._parameter(bias, width)
        return self._add(Gather(source, self._value(width), aggr, bonds, named_eps, named_bias, train_eps and bool(eps)))

    def linear(
        self,
        source: int,
        name: str,
        out_channels: int,
        *,
        bias: str | None = None,
        relu: bool = False,
        add: int | None = None,
        first_column: int | None = None,
    ) -> int:
        """Multiply rows by a matrix, as :class:`molgcn.ops.layer_network.steps.Linear` says.

        Args:
            source: The rows, of atoms or bonds.
            name: The name of the linear map, whose weight is `<name>.weight`.
            out_channels: The number of columns of the result.
            bias: The name of the bias; None for `<name>.bias`, and "" for none.
            relu: Whether relu follows.
            add: The value that is added, or None.
            first_column: The first of the columns of the weight that multiply these rows; None where they all do.
        """
        width, part = self.width(source), ""
        if first_column is not None:
            part = f"[{first_column}:{first_column + width}]"
        weight = self._parameter(f"{name}.weight{part}", out_channels, width)
        assert weight is not None
        named_bias = self._parameter(f"{name}.bias" if bias is None else bias, out_channels)
        return self._add(Linear(source, self._value(out_channels, self._values[source].rows), weight, named_bias, relu, add=add))

    def normalize(self, source: int) -> int:
        """Scale every row to length 1."""
        return self._add(Normalize(source, self._value(self.width(source))))

    def expand(self, source: int, *, target: int | None = None, bonds: int | None = None) -> int:
        """Give every directed bond its source's row, as :class:`molgcn.ops.layer_network.steps.Expand` says.

        Args:
            source: The atoms' rows.
            target: The atoms' rows of which each bond also gets that of the atom it points at; or None.
            bonds: The rows of bonds or edges that are added, in the width of `source`; or None.
        """
        return self._add(Expand(source, self._value(self.width(source), "edges"), bonds, target))

    def spread(self, source: int) -> int:
        """Give every directed bond its own row of the bonds' rows `source`."""
        return self._add(Spread(source, self._value(self.width(source), "edges")))

    def sum_incoming(self, source: int) -> int:
        """Sum the rows of the directed bonds that point at each atom."""
        return self._add(SumIncoming(source, self._value(self.width(source))))

    def sum_non_backtracking(self, source: int) -> int:
        """Sum the rows of the bonds before each bond but its reverse; see :class:`molgcn.ops.layer_network.steps.SumNonBacktracking`."""
        return self._add(SumNonBacktracking(source, self._value(self.width(source), "edges")))

    def average_directions(self, source: int) -> int:
        """Give both directions of every bond their mean; see :class:`molgcn.ops.layer_network.steps.AverageDirections`."""
        return self._add(AverageDirections(source, self._value(self.width(source), "edges")))

    def attend(
        self,
        source: int,
        heads: int,
        vectors: Sequence[str],
        *,
        target: int | None = None,
        bonds: int | None = None,
        bias: str = "",
        concat: bool = True,
        slope: float = 0.2,
        dropout: float = 0.0,
    ) -> int:
        """Attend to the neighbours and the atom itself, as :class:`molgcn.ops.layer_network.steps.Attend` says.

        Args:
            source: The atoms' rows, which are summed.
            heads: The number of heads.
            vectors: The names of the vectors of the scores: that of the source, and without `target` those of the target and the bonds.
            target: The rows of the target in GATv2's scores; None for GAT's.
            bonds: The bonds' rows in the width of `source`, or None.
            bias: The name of a bias; "" for none.
            concat: Whether the heads stand side by side. Otherwise their mean is computed.
            slope: The negative slope of the leaky relu.
            dropout: The probability that a weight is dropped in training.
        """
        width, rate = self.width(source), dropout if self._training else 0.0
        named = [self._parameter(name, 1, heads, width // heads) for name in vectors]
        out, softmax = self._value(width if concat else width // heads), self._value(2 * heads)
        att, att_target, att_bonds = (*named, None, None)[:3]
        assert att is not None
        of_bias = self._parameter(bias, self.width(out))
        site = self._next_site() if rate else None
        return self._add(Attend(source, out, softmax, heads, att, att_target, att_bonds, target, bonds, of_bias, concat, slope, rate, site))

    def gate(self, source: int, gates: int) -> int:
        """Average the neighbours' rows with gates as weights, as :class:`molgcn.ops.layer_network.steps.Gate` says.

        Args:
            source: The atoms' rows.
            gates: The edges' rows, whose sigmoids are the weights.
        """
        return self._add(Gate(source, self._value(self.width(source)), gates))

    def finish(
        self,
        source: int,
        norm: str = "",
        kind: Literal["batch", "layer"] = "batch",
        *,
        activation: str = "",
        dropout: bool = False,
        add: int | None = None,
    ) -> int:
        """Let norm, activation and dropout follow, and add a value. Without norm, relu becomes part of a product before it if possible.

        Args:
            source: The atoms' rows.
            norm: The name of the norm; "" for none.
            kind: The kind of the norm.
            activation: The activation that follows, one of :data:`molgcn.ops.layer_network.steps.ACTIVATIONS`.
            dropout: Whether dropout follows.
            add: The value that is added at last, or None.
        """
        last, site = self._steps[-1], self._site() if dropout else None
        free = isinstance(last, Linear) and last.out == source and last.add is None and not last.relu and not norm
        if not norm and not activation and site is None and add is None:
            return source
        if free and activation == "relu" and add is None:
            self._steps[-1] = last._replace(relu=True, dropout=site)  # type: ignore[call-arg]
            return source
        if free and not activation and site is None:
            self._steps[-1] = last._replace(add=add)  # type: ignore[call-arg]
            return source
        named = None
        if norm:
            named = self.scope + norm
            self._norms[named] = kind
        made = self._values[source]
        return self._add(Finish(source, self._value(made.width, made.rows), named, activation, site, add))

    def end_layer(self) -> None:
        """End a layer. Backward passes take gradients of weights, and compute values again, layer by layer."""
        self._ends.append(len(self._steps))

    def program(self, pool: str, eps: float = 1e-5, momentum: float = 0.1, outs: Sequence[int] = ()) -> Program:
        """Return the program of the steps so far; :class:`Program` describes the arguments.

        Without `outs` the last value is pooled.

        Raises:
            ValueError: If the steps do not fit together.
        """
        last = self._steps[-1].out
        hidden = (self.width(last),)
        parameters = self._parameters | {f"{norm}.{name}": hidden for norm in self._norms for name in ("weight", "bias")}
        lists = tuple(self._values), tuple(self._steps), tuple(self._ends)
        made = Program(*lists, parameters, self._norms, pool, self._dropout, eps, momentum, tuple(outs) or (last,))
        return Program.from_text(made.text)

    def _parameter(self, name: str, *shape: int) -> str | None:
        """Note the shape of a parameter and return its whole name, or None where it has none."""
        if not name:
            return None
        self._parameters[self.scope + name] = shape
        return self.scope + name

    def _value(self, width: int, rows: Rows = "atoms") -> int:
        self._values.append(Value(rows, width))
        return len(self._values) - 1

    def _add(self, step: Step) -> int:
        self._steps.append(step)
        return step.out

    def _site(self) -> int | None:
        return self._next_site() if self._dropout else None

    def _next_site(self) -> int:
        self._dropouts += 1
        return self._dropouts - 1
