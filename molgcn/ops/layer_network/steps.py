"""The steps of which the forward pass of a network is made, on numbered values: rows of atoms or of bonds."""

from __future__ import annotations

from typing import Literal, NamedTuple

X, BONDS = 0, 1
"""The values that a network is given: the atoms' rows, and the bonds' rows."""


class Value(NamedTuple):
    """Rows that a step makes or reads.

    Attributes:
        rows: "atoms", N of them, or "bonds": E, or as many as distinct bonds where the graph has codes of them.
        width: columns.
    """

    rows: Literal["atoms", "bonds"]
    width: int


class Gather(NamedTuple):
    r"""Sum what comes in along the bonds: :math:`o_i = (1 + \epsilon) h_i + \mathrm{aggr}_j \, w_{ij} \phi(h_j, e_{ij}) + b`.

    Attributes:
        source: value h.
        out: value o.
        aggr: "sum", "mean" or "max" over the neighbours, 0 for an atom without any; "gcn" sums with the weights
            :math:`D^{-1/2} A D^{-1/2}`, and "gcn_loops" with those of :math:`D^{-1/2} (A + I) D^{-1/2}`.
        bonds: value e: the message is :math:`\mathrm{relu}(h_j + e_{ij})`; None: it is :math:`h_j`.
        eps: name of :math:`\epsilon`; None leaves out the atom itself.
        bias: name of b, or None.
    """

    source: int
    out: int
    aggr: str
    bonds: int | None = None
    eps: str | None = None
    bias: str | None = None


class Linear(NamedTuple):
    r"""Multiply rows by a matrix: :math:`o = \mathrm{dropout}(\mathrm{relu}(x W^T + b)) + a`.

    Attributes:
        source: value x.
        out: value o.
        weight: name of W.
        bias: name of b, or None.
        relu: whether relu follows; then there is no a.
        dropout: number of the dropout's random numbers, or None where no dropout follows; there is none without relu and none with a.
        add: value a, or None.
    """

    source: int
    out: int
    weight: str
    bias: str | None = None
    relu: bool = False
    dropout: int | None = None
    add: int | None = None


class Finish(NamedTuple):
    r"""End a layer: :math:`o = \mathrm{dropout}(\mathrm{relu}(\mathrm{norm}(x))) + a`.

    Attributes:
        source: value x.
        out: value o.
        norm: name of the norm, or None; its kind is in :attr:`LayerNetworkSpec.norms`.
        relu: whether relu follows.
        dropout: number of the dropout's random numbers, or None where no dropout follows.
        add: value a, or None.
    """

    source: int
    out: int
    norm: str | None = None
    relu: bool = False
    dropout: int | None = None
    add: int | None = None


class Normalize(NamedTuple):
    """Scale every row to length 1, as `torch.nn.functional.normalize` does.

    Attributes:
        source: value of the rows.
        out: value of the scaled rows.
    """

    source: int
    out: int


Step = Gather | Linear | Finish | Normalize
