"""The HTML page of explanations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from molgcn.errors import counted
from molgcn.explain.config import ExplainConfig
from molgcn.explain.contributions import Contributions
from molgcn.explain.names import DescriptorGroups, Names
from molgcn.explain.shares import small_share
from molgcn.files.whole_file import whole
from molgcn.report.charts import embedded
from molgcn.report.rendering import render

PAGE = 100  # rows that the page shows
LARGEST = 5  # descriptors that are shown by name
_KINDS = {"png": "image/png", "svg": "image/svg+xml"}


@dataclass(frozen=True)
class Card:
    """A row on the page.

    Attributes:
        row: the number of the row.
        name: the name of the row, or "".
        smiles: the SMILES of the row.
        found: the contributions.
        pictures: the pictures of its molecules, without those that RDKit cannot draw.
    """

    row: int
    name: str
    smiles: str
    found: Contributions
    pictures: Sequence[bytes] = field(default=())


class Bar(NamedTuple):
    """A bar of a card: what contributes, how much, and whether it is a part of the bars before it."""

    label: str
    value: float
    part: bool = False


def bars_of(found: Contributions, descriptors: DescriptorGroups) -> list[Bar]:
    """Return the bars of a row: atoms and bonds, and each group of descriptors with those of them that are among the largest, by name.

    There are none for a network without descriptors.
    """
    if not descriptors.names:
        return []
    largest, bars = descriptors.largest(found, LARGEST), []
    for name, total in descriptors.totals(found).items():
        parts = largest.get(name, {})
        bars += [Bar(name, total), *(Bar(part, value, part=True) for part, value in parts.items())]
        others = descriptors.count(name) - len(parts)
        if parts and others:
            bars.append(Bar(counted(others, "other"), total - sum(parts.values()), part=True))
    return bars


def write_page(path: Path, cards: Sequence[Card], config: ExplainConfig, names: Names, scale: float, shares: Mapping[str, float]) -> None:
    """Write the page as one HTML file that needs no other file.

    Args:
        path: the file to write.
        cards: the rows to show.
        config: how the rows were explained.
        names: the names that the page shows.
        scale: the contribution of an atom that has the full colour.
        shares: the share of the explained predictions by where it comes from.
    """
    pictures = [[embedded(picture, _KINDS[config.image]) for picture in card.pictures] for card in cards]
    bars = [bars_of(card.found, names.descriptors) for card in cards]
    page = render(
        "page.html.jinja",
        "molgcn.explain",
        cards=list(zip(cards, pictures, bars, strict=True)),
        config=config,
        explained=names.explained,
        checkpoint=names.checkpoint,
        described=bool(names.descriptors.names),
        scale=scale,
        longest=max((abs(bar.value) for some in bars for bar in some), default=0.0) or 1.0,
        warning=small_share(shares),
        most=PAGE,
    )
    with whole(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
