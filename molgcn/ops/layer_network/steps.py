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
    r"""Give every directed bond its source's row: :math:`o_{vw} = h_v + b_{vw} - r_{wv}`.

    Attributes:
        source: The value h, rows of atoms.
        out: The value o, rows of edges.
        bonds: The value b, rows of bonds, or None.
        reverse: The value r, rows of edges, of which each bond's reverse is subtracted; or None.
    """

    source: int
    out: int
    bonds: int | None = None
    reverse: int | None = None


class SumIncoming(NamedTuple):
    r"""Sum the rows of the directed bonds that point at each atom: :math:`o_v = \sum_u h_{uv}`.

    Attributes:
        source: The value h, rows of edges.
        out: The value o, rows of atoms.
    """

    source: int
    out: int


Step = Gather | Linear | Finish | Normalize | Expand | SumIncoming
KINDS = {kind.__name__: kind for kind in (Gather, Linear, Finish, Normalize, Expand, SumIncoming)}


def values_read(step: Step) -> Iterator[int]:
    """Yield the values that a step reads."""
    yield step.source
    for value in (getattr(step, name, None) for name in ("bonds", "add", "reverse")):
        if value is not None:
            yield value
