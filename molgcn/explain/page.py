"""The pictures of explained molecules, and the HTML page that shows them, made at the end since all molecules share one scale."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from molgcn.data.featurize import sides_of_graph
from molgcn.data.formats import Molecules
from molgcn.errors import counted
from molgcn.explain.config import ExplainConfig
from molgcn.explain.contributions import Contributions, Explained, Parts
from molgcn.explain.names import DescriptorGroups, Names, name_column, small_share
from molgcn.files.whole_file import whole, write_text
from molgcn.report.drawings import rdkit_drawing
from molgcn.report.page import render
from molgcn.report.plots import embedded
from molgcn.screening.chunk import shown_row

PAGE_NAME = "index.html"
PAGE = 100  # rows that the page shows
LARGEST = 5  # descriptors that are shown by name
_FULL = 0.99  # the share of all atoms that have less than the full colour, so that one unusual molecule does not make the others pale
_KINDS = {"png": "image/png", "svg": "image/svg+xml"}
SIZE = 420, 320
LOWERS, RAISES = (0.82, 0.39, 0.16), (0.12, 0.44, 0.71)  # orange and blue
_WIDTH = 0.45  # the standard deviation of a halo, in the units of RDKit's coordinates, where a bond is 1.5 long
_MARGIN = 3 * _WIDTH  # around the atoms, beyond which a halo is white
_LEAST = 4.2, 3.2  # half of the width and the height of a picture, so that small molecules are not drawn larger than others
_STEP = 0.1  # the distance of two points of the grid of colours


class Card(NamedTuple):
    """A row on the page: its number, its name or "", its SMILES and its contributions."""

    row: int
    name: str
    smiles: str
    found: Contributions


class Bar(NamedTuple):
    """A bar of a card: what contributes, how much, and whether it is a part of the bars before it."""

    label: str
    value: float
    part: bool = False


class _Molecule(NamedTuple):
    """A molecule or reaction to draw: its row and component, the end of its file's name, its text, and weights of its atoms."""

    row: int
    component: int
    name: str
    item: str
    weights: np.ndarray


class Gallery:
    """Collects explained molecules of an open file, for pictures and a page in a folder."""

    def __init__(self, folder: Path, config: ExplainConfig, names: Names, source: Molecules) -> None:
        self._folder, self._config, self._names, self._kind = folder, config, names, source.kind
        self._name_column = name_column(source.columns)
        self._molecules: list[_Molecule] = []
        self._cards: list[Card] = []

    def add(self, chunk: Explained, place: int, molecules: Sequence[tuple[str, np.ndarray]], found: Contributions) -> None:
        """Add a row of a chunk, with the SMILES or mol block of each of its molecules and the weights of its atoms in a drawing."""
        row, record = chunk.start + place, chunk.records[place]
        for number, (item, weights) in enumerate(molecules):
            name = f"{row}_{number}" if self._names.components else str(row)
            self._molecules.append(_Molecule(row, number, name, item, weights))
        if len(self._cards) < PAGE:
            name = "" if self._name_column is None else record.cells[self._name_column]
            smiles = shown_row(chunk, place) if chunk.smiles is None else chunk.smiles[place]
            self._cards.append(Card(row, name, smiles, found))

    def close(self, shares: Mapping[str, float]) -> None:
        """Draw all molecules and write the page of the first ones, which warns where atoms and bonds have a small share."""
        scale = colour_scale([one.weights for one in self._molecules])
        pictures: dict[int, list[tuple[str, str]]] = defaultdict(list)
        shown = {card.row for card in self._cards}
        for one in self._molecules:
            for side in sides_of_graph(one.item, self._names.features, self._kind, self._names.standardize, one.component):
                picture = draw_contributions(side.mol, one.weights[side.atoms], scale, self._config.image)
                if picture is None:
                    continue
                name = "_".join(filter(None, ("molecule", one.name, side.name)))
                with whole(self._folder / f"{name}.{self._config.image}") as temporary:
                    temporary.write_bytes(picture)
                if one.row in shown:
                    pictures[one.row].append((side.name, embedded(picture, _KINDS[self._config.image])))
        bars = [bars_of(card.found, self._names.descriptors) for card in self._cards]
        page = render(
            "page.html.jinja",
            Path(__file__).parent,
            cards=[(card, pictures[card.row], own) for card, own in zip(self._cards, bars, strict=True)],
            config=self._config,
            explained=self._names.explained,
            checkpoint=self._names.checkpoint,
            share=self._names.share,
            described=bool(self._names.descriptors.names),
            scale=scale,
            longest=max((abs(bar.value) for some in bars for bar in some), default=0.0) or 1.0,
            warning=small_share(shares),
            most=PAGE,
        )
        write_text(self._folder / PAGE_NAME, page)


def colour_scale(weights: Sequence[np.ndarray]) -> float:
    """Return the absolute contribution of an atom, from the weights of each molecule, that has the full colour.

    It is the 99 % quantile, or the largest of fewer than 100 atoms.
    """
    return float(np.quantile(np.abs(np.concatenate(weights)), _FULL, method="higher")) if weights else 0.0


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


def draw_contributions(mol: Any, weights: np.ndarray, scale: float, image: Literal["png", "svg"]) -> bytes | None:
    """Return a picture of an `rdkit.Chem.Mol` with the contributions of its atoms [N], or None where RDKit cannot draw it.

    A contribution of `scale` has the full colour. Larger ones have it too. See :func:`on_drawn_atoms`.
    """
    drawing = rdkit_drawing()
    if drawing is None:
        return None
    from rdkit import rdBase

    drawer = {"svg": drawing.MolDraw2DSVG, "png": drawing.MolDraw2DCairo}[image](*SIZE)
    try:
        with rdBase.BlockLogs():
            mol = drawing.PrepareMolForDrawing(mol, addChiralHs=False)
            _draw_halos(drawer, mol, weights / scale if scale else weights)
            drawer.DrawMolecule(mol)
    except (ValueError, RuntimeError):  # RDKit cannot sanitize the molecule
        return None
    drawer.FinishDrawing()
    picture = drawer.GetDrawingText()
    return picture.encode() if isinstance(picture, str) else picture


def _draw_halos(drawer: Any, mol: Any, weights: np.ndarray) -> None:
    """Draw the halos of atoms whose weights, float64 [N], are shares of the full colour."""
    from rdkit.Chem.Draw import rdMolDraw2D

    places = mol.GetConformer().GetPositions()[:, :2]
    middle, reach = (places.max(axis=0) + places.min(axis=0)) / 2, np.ptp(places, axis=0) / 2 + _MARGIN
    reach = np.maximum(reach, _LEAST)
    low, high = middle - reach, middle + reach
    x, y = (np.arange(start, stop + _STEP, _STEP) for start, stop in zip(low, high, strict=True))
    across, along = (np.exp(-(((axis - place[:, None]) / _WIDTH) ** 2) / 2) for axis, place in zip((x, y), places.T, strict=True))
    field = np.einsum("a,ax,ay->xy", weights, across, along).clip(-1, 1)
    strongest = float(np.abs(field).max())
    parameters: Any = rdMolDraw2D.ContourParams()
    parameters.fillGrid, parameters.gridResolution = True, _STEP
    parameters.useFillThreshold, parameters.fillThresholdIsFraction, parameters.fillThreshold = True, False, 0.01
    # RDKit gives the last colours to the largest value of the grid, here the colours of that share of the scale
    parameters.setColourMap([_shade(LOWERS, strongest), (1.0, 1.0, 1.0), _shade(RAISES, strongest)])
    drawer.ClearDrawing()
    rdMolDraw2D.ContourAndDrawGrid(drawer, field, x.tolist(), y.tolist(), 0, [], parameters, mol)
    drawer.drawOptions().clearBackground = False


def _shade(colour: tuple[float, float, float], share: float) -> tuple[float, ...]:
    return tuple(1 + share * (part - 1) for part in colour)


def on_drawn_atoms(contributions: Parts, count: int) -> np.ndarray:
    """Return the contributions [count] of the first atoms. Those of the hydrogens after them are added to their neighbours."""
    values = contributions.of_atoms
    beyond = contributions.ends[contributions.ends[:, 1] >= count]
    np.add.at(values, beyond[:, 0], values[beyond[:, 1]])
    return values[:count]
