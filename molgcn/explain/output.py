"""The output folder of explanations: two tables, pictures, and a page that shows them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from molgcn.data.featurize import molecule_of_graph
from molgcn.data.formats import Molecules
from molgcn.explain.config import ExplainConfig
from molgcn.explain.contributions import Contributions, Explained, Parts
from molgcn.explain.drawing import draw_contributions
from molgcn.explain.page import PAGE, Card, write_page
from molgcn.files.whole_file import whole
from molgcn.screening.output import Table, open_table
from molgcn.screening.run import header_of, shown_row, written_rows

MOLECULES, CONTRIBUTIONS, PAGE_NAME = "molecules.csv", "contributions.csv", "index.html"
_PART = ["part", "atoms", "elements", "contribution"]
_FORM = ".7g"


@dataclass(frozen=True)
class Names:
    """The names that tables and the page show.

    Attributes:
        explained: the name of the explained output, with its unit.
        column: the header of the predictions, as `predict` writes it; the logit's name for classes.
        features: the name of the featuriser.
        standardize: the standard form of molecules.
        checkpoint: the checkpoint with the weights.
        components: the columns of the molecules of a row; empty where a row is one molecule.
    """

    explained: str
    column: str
    features: str
    standardize: str
    checkpoint: str
    components: Sequence[str] = ()


class ExplanationFolder:
    """The open output folder, which takes chunks of explained rows.

    Attributes:
        worst: the largest relative error so far; see :attr:`Contributions.relative_error`.
        beyond: the number of rows whose relative error exceeds the tolerance.
    """

    def __init__(self, folder: Path, config: ExplainConfig, names: Names, kind: Any, molecules: Table, parts: Table) -> None:
        self.worst, self.beyond = 0.0, 0
        self._folder, self._config, self._names, self._kind = folder, config, names, kind
        self._molecules, self._parts = molecules, parts
        self._cards: list[Card] = []

    def write(self, chunk: Explained) -> None:
        """Write the rows and pictures of a chunk."""
        for place, before, behind in written_rows(chunk, self._config.on_error):
            found = chunk.contributions.get(place)
            numbers = ["nan"] * 4
            if found is not None:
                numbers = [
                    format(value, _FORM) for value in (found.prediction, found.baseline, found.prediction - found.baseline, found.error)
                ]
                self._write_one(chunk, place, found)
            self._molecules.write([[*before, *numbers, *behind]])

    def write_page(self) -> None:
        """Write the page of the first molecules."""
        write_page(self._folder / PAGE_NAME, self._cards, self._config, self._names.explained, self._names.checkpoint)

    def _write_one(self, chunk: Explained, place: int, found: Contributions) -> None:
        row, text, item = chunk.start + place, shown_row(chunk, place), chunk.records[place].molecule
        several, image, pictures = self._names.components, self._config.image, []
        items = item.split("\n") if several else [item]
        for number, (one, parts) in enumerate(zip(items, found.of_molecules, strict=True)):
            mol = molecule_of_graph(one, self._names.features, self._kind, self._names.standardize)
            before = [str(row), text, several[number]] if several else [str(row), text]
            self._parts.write([[*before, *cells] for cells in part_rows(mol, parts)])
            picture = draw_contributions(mol, parts, image)
            if picture is not None:
                pictures.append(picture)
                name = f"molecule_{row}_{number}" if several else f"molecule_{row}"
                with whole(self._folder / f"{name}.{image}") as temporary:
                    temporary.write_bytes(picture)
        if len(self._cards) < PAGE:
            self._cards.append(Card(row, text, found, pictures))
        self.worst = max(self.worst, found.relative_error)
        self.beyond += found.relative_error > self._config.tolerance


def part_rows(mol: Any, found: Parts) -> Iterator[list[str]]:
    """Yield a row of the table of contributions for every atom, and then for every bond.

    Each row has four cells: "atom" or "bond", the index of the atom or the indices of the bond's two atoms, the element or elements, and
    the contribution.

    Args:
        mol: an `rdkit.Chem.Mol` whose atoms are the first atoms of the graph. The atoms after them are hydrogens.
        found: the contributions of the graph's atoms and bonds.
    """
    elements = [atom.GetSymbol() for atom in mol.GetAtoms()]
    elements += ["H"] * (len(found.atoms) - len(elements))
    for atom, value in enumerate(found.atoms.tolist()):
        yield ["atom", str(atom), elements[atom], format(value, _FORM)]
    for (one, other), value in zip(found.ends.tolist(), found.bonds.tolist(), strict=False):  # bonds may be empty, see Parts
        yield ["bond", f"{one}-{other}", f"{elements[one]}-{elements[other]}", format(value, _FORM)]


@contextmanager
def open_folder(folder: Path, config: ExplainConfig, names: Names, molecules: Molecules) -> Iterator[ExplanationFolder]:
    """Open the tables of the folder. They appear, together with the page, when the block ends without an error.

    Args:
        folder: the folder, which exists.
        config: how molecules are explained.
        names: the names that tables and the page show.
        molecules: the open file of molecules.

    Raises:
        UserError: when the tables cannot be written.
    """
    results = [names.column, "baseline", "difference", "completeness error"]
    with ExitStack() as stack:
        tables = [stack.enter_context(open_table(folder / name)) for name in (MOLECULES, CONTRIBUTIONS)]
        tables[0].write([header_of(molecules.columns, results, config.on_error)])
        tables[1].write([["row", "molecule", *(["component"] if names.components else []), *_PART]])
        opened = ExplanationFolder(folder, config, names, molecules.kind, *tables)
        yield opened
        opened.write_page()
