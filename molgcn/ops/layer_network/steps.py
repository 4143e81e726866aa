"""The steps of a network's forward pass. They read and compute numbered values, which are rows of atoms or of bonds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

X, BONDS = 0, 1
"""The numbers of the values that are a network's inputs: the atoms' rows and the bonds' rows."""


AGGREGATIONS = ("sum", "mean", "max", "gcn", "gcn_loops")
"""The aggregations of :class:`Gather`; kernels know them by their index."""

ACTIVATIONS = ("", "relu", "gelu", "silu", "leaky_relu", "elu", "tanh")
"""The activations of :class:`Finish`, "" for none; kernels know them by their index. They are those of PyTorch with its defaults."""


Rows = Literal["atoms", "bonds", "edges"]


class Value(NamedTuple):
    """The rows that a step reads or computes.

    Attributes:
        rows: "atoms" for N rows. "bonds" for E rows, or for one row per distinct bond if the graph has codes of bonds. "edges" for E rows,
            one for each directed bond.
        width: The number of columns.
    """

    rows: Rows
    width: int


class Gather(NamedTuple):
    r"""Aggregate the messages of the neighbours: :math:`o_i = (1 + \epsilon) h_i + \mathrm{aggr}_j \, w_{ij} \phi(h_j, e_{ij}) + b`.

    Attributes:
        source: The value h.
        out: The value o.
        aggr: "sum", "mean" or "max" over the neighbours, 0 for an atom without any. "gcn" is a sum with the weights
            :math:`D^{-1/2} A D^{-1/2}`, and "gcn_loops" one with the weights :math:`D^{-1/2} (A + I) D^{-1/2}`.
        bonds: The value e, for messages :math:`\phi = \mathrm{relu}(h_j + e_{ij})`; or None, for :math:`\phi = h_j`.
        eps: The name of :math:`\epsilon`, or None to leave out the atom itself.
        bias: The name of b, or None.
        train_eps: Whether :math:`\epsilon` is learnt.
    """

    source: int
    out: int
    aggr: str
    bonds: int | None = None
    eps: str | None = None
    bias: str | None = None
    train_eps: bool = False


class Linear(NamedTuple):
    r"""Multiply rows by a matrix: :math:`o = \mathrm{dropout}(\mathrm{relu}(x W^T + b)) + a`.

    Attributes:
        source: The value x.
        out: The value o.
        weight: The name of W.
        bias: The name of b, or None.
        relu: Whether relu follows, whose derivative backward has from the result. Then `add` is None.
        dropout: The number of the dropout in the network, or None without dropout. Dropout comes only with relu, and `add` is None then.
        add: The value a, or None.
    """

    source: int
    out: int
    weight: str
    bias: str | None = None
    relu: bool = False
    dropout: int | None = None
    add: int | None = None


class Finish(NamedTuple):
    r"""End a layer: :math:`o = \mathrm{dropout}(\mathrm{act}(\mathrm{norm}(x))) + a`.

    Attributes:
        source: The value x.
        out: The value o.
        norm: The name of the norm, or None. Its kind is in the program's `norms`.
        activation: The activation that follows, one of :data:`ACTIVATIONS`.
        dropout: The number of the dropout in the network, or None without dropout.
        add: The value a, or None.
    """

    source: int
    out: int
    norm: str | None = None
    activation: str = ""
    dropout: int | None = None
    add: int | None = None


class Normalize(NamedTuple):
    """Scale every row to length 1; see `torch.nn.functional.normalize`.

    Attributes:
        source: The value of the rows.
        out: The value of the scaled rows.
    """

    source: int
    out: int


class Expand(NamedTuple):
    r"""Give every directed bond its source's row: :math:`o_{vw} = h_v + t_w + b_{vw}`.

    Attributes:
        source: The value h, rows of atoms.
        out: The value o, rows of edges.
        bonds: The value b, rows of bonds or edges, or None.
        target: The value t, rows of atoms, or None.
    """

    source: int
    out: int
    bonds: int | None = None
    target: int | None = None


class Spread(NamedTuple):
    """Give every directed bond its own row: that of its code among the distinct bonds, where the graph has codes.

    Attributes:
        source: The value of the bonds' rows.
        out: The value of the edges' rows.
    """

    source: int
    out: int


class SumIncoming(NamedTuple):
    r"""Sum the rows of the directed bonds that point at each atom: :math:`o_v = \sum_u h_{uv}`.

    Attributes:
        source: The value h, rows of edges.
        out: The value o, rows of atoms.
    """

    source: int
    out: int


class SumNonBacktracking(NamedTuple):
    r"""Sum the rows of the bonds that a directed bond continues, all but its own reverse: :math:`o_{vw} = \sum_u h_{uv} - h_{wv}`.

    Attributes:
        source: The value h, rows of edges.
        out: The value o, rows of edges.
    """

    source: int
    out: int


class AverageDirections(NamedTuple):
    r"""Give both directions of every bond their mean: :math:`o_{vw} = (h_{vw} + h_{wv}) / 2`.

    Attributes:
        source: The value h, rows of edges.
        out: The value o, rows of edges.
    """

    source: int
    out: int


EdgeStep = SumIncoming | SumNonBacktracking | AverageDirections
"""A step that reads rows of edges, in each of which it is linear and has no parameters."""


class Attend(NamedTuple):
    r"""Sum over the neighbours and the atom itself with a softmax of scores as weights: :math:`o_i = \sum_j \alpha_{ij} h_j + b`.

    Every head has the same number of columns of h, and weights of its own. Its score is
    :math:`\mathrm{leaky}(a_s \cdot h_j + a_t \cdot h_i + a_e \cdot e_{ij})` as in GAT without `target`, and
    :math:`a_s \cdot \mathrm{leaky}(h_j + t_i + e_{ij})` as in GATv2 with it. The atom's own bond takes the place of given self-loops.
    Its e is the mean over the bonds that point at the atom, or 0 if there are none.

    Attributes:
        source: The value h.
        out: The value o: the heads side by side, or their mean.
        softmax: The value of each atom's and head's largest score, and the reciprocal of the sum of the exponentials relative to it.
        heads: The number of heads.
        att: The name of a_s.
        att_target: The name of a_t, or None with `target`.
        att_bonds: The name of a_e, or None with `target` or without bonds.
        target: The value t, or None.
        bonds: The value e, or None.
        bias: The name of b, or None.
        concat: Whether the heads stand side by side.
        slope: The negative slope of the leaky relu.
        rate: The probability that a weight is dropped. Such a step is for training.
        dropout: The number of the weights' dropout in the network, or None without dropout.
    """

    source: int
    out: int
    softmax: int
    heads: int
    att: str
    att_target: str | None = None
    att_bonds: str | None = None
    target: int | None = None
    bonds: int | None = None
    bias: str | None = None
    concat: bool = True
    slope: float = 0.2
    rate: float = 0.0
    dropout: int | None = None


GATE_EPSILON = 1e-6
"""The value that is added to the denominator of :class:`Gate`."""


class Gate(NamedTuple):
    r"""Average the neighbours with gates as weights: :math:`o_w = \sum_v \sigma(t_{vw}) h_v / (\sum_v \sigma(t_{vw}) + 10^{-6})`.

    Attributes:
        source: The value h, rows of atoms.
        out: The value o, rows of atoms.
        gates: The value t, rows of edges.
    """

    source: int
    out: int
    gates: int


Step = Gather | Linear | Finish | Normalize | Expand | Spread | EdgeStep | Attend | Gate
_EDGE_STEPS = (SumIncoming, SumNonBacktracking, AverageDirections)
KINDS = {kind.__name__: kind for kind in (Gather, Linear, Finish, Normalize, Expand, Spread, *_EDGE_STEPS, Attend, Gate)}


def values_read(step: Step) -> Iterator[int]:
    """Yield the values that a step reads."""
    yield step.source
    for value in (getattr(step, name, None) for name in ("bonds", "add", "target", "gates")):
        if value is not None:
            yield value


def values_made(step: Step) -> Iterator[int]:
    """Yield the values that a step computes."""
    yield step.out
    if isinstance(step, Attend):
        yield step.softmax
