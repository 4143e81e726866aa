"""The HTML page of explanations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from molgcn.explain.config import ExplainConfig
from molgcn.explain.contributions import Contributions
from molgcn.files.whole_file import whole
from molgcn.report.charts import embedded
from molgcn.report.rendering import number

PAGE = 100  # rows that the page shows
_KINDS = {"png": "image/png", "svg": "image/svg+xml"}


@dataclass(frozen=True)
class Card:
    """A row on the page.

    Attributes:
        row: the number of the row.
        text: the SMILES or the name of the row.
        found: the contributions.
        pictures: the pictures of its molecules, without those that RDKit cannot draw.
    """

    row: int
    text: str
    found: Contributions
    pictures: Sequence[bytes]


def write_page(path: Path, cards: Sequence[Card], config: ExplainConfig, explained: str, checkpoint: str) -> None:
    """Write the page as one HTML file that needs no other file.

    Args:
        path: the file to write.
        cards: the rows to show.
        config: how the rows were explained.
        explained: the name of the explained output, with its unit.
        checkpoint: the checkpoint with the weights.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("molgcn.explain", "."), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {"number": number}
    pictures = [[embedded(picture, _KINDS[config.image]) for picture in card.pictures] for card in cards]
    page = environment.get_template("page.html.jinja").render(
        cards=list(zip(cards, pictures, strict=True)), config=config, explained=explained, checkpoint=checkpoint, most=PAGE
    )
    with whole(path) as temporary:
        temporary.write_text(page, encoding="utf-8")
