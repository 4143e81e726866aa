"""The text of reactions, reactants>agents>products, without RDKit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

_ARROW = re.compile(r"(?<!-)>")  # "->" is a dative bond
_LOOKED_AT = 1000


class Sides(NamedTuple):
    """The SMILES of the reactants, agents and products of a reaction, "" for none."""

    reactants: str
    agents: str
    products: str


def sides_of(text: str) -> Sides | None:
    """Return the sides of a reaction SMILES, or None for a text that does not have exactly two arrows ">"."""
    parts = [part.strip() for part in _ARROW.split(text)]
    return Sides(*parts) if len(parts) == 3 else None


def holds_reactions(column: Iterable[str]) -> bool:
    """Return whether a column holds reactions: whether most of its first 1,000 texts are, so that a wrong cell does not decide."""
    found = [sides_of(text) is not None for text in islice(column, _LOOKED_AT) if text.strip()]
    return 2 * sum(found) > len(found)


def joined(texts: Sequence[str]) -> str:
    """Return the SMILES of all molecules of a row as one SMILES. Molecules beside a reaction become its agents."""
    every = [sides_of(text) or Sides("", text.strip(), "") for text in texts]
    reactants, agents, products = (".".join(filter(None, side)) for side in zip(*every, strict=True))
    return f"{reactants}>{agents}>{products}" if any(sides_of(text) for text in texts) else ".".join(text.strip() for text in texts)
