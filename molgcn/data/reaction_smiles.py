"""The text of reactions, reactants>agents>products, without RDKit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_ARROW = re.compile(r"(?<!-)>")  # "->" is a dative bond


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
    """Return whether a column holds reactions: whether the first cell with a text is one."""
    first = next((text for text in column if text.strip()), "")
    return sides_of(first) is not None


def joined(texts: Sequence[str]) -> str:
    """Return the SMILES of all molecules of a row as one SMILES. Molecules beside a reaction become its agents."""
    every = [sides_of(text) or Sides("", text.strip(), "") for text in texts]
    reactants, agents, products = (".".join(filter(None, side)) for side in zip(*every, strict=True))
    return f"{reactants}>{agents}>{products}" if any(sides_of(text) for text in texts) else ".".join(text.strip() for text in texts)
