"""The pictures of explained molecules, and the page that shows them, made at the end since all molecules share one scale."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from molgcn.data.featurize import molecule_of_graph
from molgcn.data.formats import Molecules
from molgcn.explain.config import ExplainConfig
from molgcn.explain.contributions import Contributions, Explained
from molgcn.explain.drawing import draw_contributions
from molgcn.explain.names import Names, name_column
from molgcn.explain.page import PAGE, Card, write_page
from molgcn.files.whole_file import whole
from molgcn.screening.run import shown_row

PAGE_NAME = "index.html"
_FULL = 0.99  # the share of all atoms that have less than the full colour, so that one unusual molecule does not make the others pale


class _Molecule(NamedTuple):
    """A molecule to draw: its row, the end of its file's name, its SMILES or mol block, and weights of its atoms."""

    row: int
    name: str
    item: str
    weights: np.ndarray


class Gallery:
    """Collects explained molecules.

    Args:
        folder: the folder to write to.
        config: how molecules are explained.
        names: the names that the page shows.
        source: the open file of molecules.
    """

    def __init__(self, folder: Path, config: ExplainConfig, names: Names, source: Molecules) -> None:
        self._folder, self._config, self._names, self._kind = folder, config, names, source.kind
        self._name_column = name_column(source.columns)
        self._molecules: list[_Molecule] = []
        self._cards: list[Card] = []

    def add(self, chunk: Explained, place: int, molecules: Sequence[tuple[str, np.ndarray]], found: Contributions) -> None:
        """Add a row.

        Args:
            chunk: the chunk that has the row.
            place: the number of the row in the chunk.
            molecules: the SMILES or mol block of each molecule of the row, and the weights of its atoms in a drawing.
            found: the contributions of the row.
        """
        row, record = chunk.start + place, chunk.records[place]
        for number, (item, weights) in enumerate(molecules):
            name = f"{row}_{number}" if self._names.components else str(row)
            self._molecules.append(_Molecule(row, name, item, weights))
        if len(self._cards) < PAGE:
            name = "" if self._name_column is None else record.cells[self._name_column]
            smiles = shown_row(chunk, place) if chunk.smiles is None else chunk.smiles[place]
            self._cards.append(Card(row, name, smiles, found))

    def close(self, shares: Mapping[str, float]) -> None:
        """Draw all molecules and write the page of the first ones.

        Args:
            shares: the share of the explained predictions by where it comes from.
        """
        scale = colour_scale([one.weights for one in self._molecules])
        pictures: dict[int, list[bytes]] = defaultdict(list)
        shown = {card.row for card in self._cards}
        for one in self._molecules:
            mol = molecule_of_graph(one.item, self._names.features, self._kind, self._names.standardize)
            picture = draw_contributions(mol, one.weights, scale, self._config.image)
            if picture is None:
                continue
            with whole(self._folder / f"molecule_{one.name}.{self._config.image}") as temporary:
                temporary.write_bytes(picture)
            if one.row in shown:
                pictures[one.row].append(picture)
        cards = [replace(card, pictures=pictures[card.row]) for card in self._cards]
        write_page(self._folder / PAGE_NAME, cards, self._config, self._names, scale, shares)


def colour_scale(weights: Sequence[np.ndarray]) -> float:
    """Return the absolute contribution from which on atoms have the full colour: the 99 % quantile, or the largest of fewer than 100.

    Args:
        weights: the contributions of the atoms of each molecule.
    """
    return float(np.quantile(np.abs(np.concatenate(weights)), _FULL, method="higher")) if weights else 0.0
