"""The output folder of explanations: two tables, pictures, and a page that shows them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from molgcn.data.featurize import Side, sides_of_graph
from molgcn.data.formats import Molecules
from molgcn.explain.config import ExplainConfig
from molgcn.explain.contributions import Contributions, Explained, Parts
from molgcn.explain.names import GRAPH, Names, shares_of
from molgcn.explain.page import Gallery, on_drawn_atoms
from molgcn.screening.chunk import header_of, shown_row, written_rows
from molgcn.screening.output import Table, open_table

MOLECULES, CONTRIBUTIONS = "molecules.csv", "contributions.csv"
_FORM = ".7g"


class ExplanationFolder:
    """The open output folder, which takes chunks of explained rows."""

    def __init__(self, gallery: Gallery, config: ExplainConfig, names: Names, source: Molecules, molecules: Table, parts: Table) -> None:
        self.gallery = gallery  # the explained molecules, for the page and the pictures
        self.worst = 0.0  # the largest relative error so far; see :attr:`Contributions.relative_error`
        self.beyond = 0  # the number of rows whose relative error exceeds the tolerance
        self._config, self._names, self._kind = config, names, source.kind
        self._molecules, self._parts = molecules, parts
        self._sizes: Counter[str] = Counter()
        described = names.descriptors.places
        shared_out = ["baseline", "difference", *([GRAPH, *described] if described else []), "completeness error"]
        results = [names.column, *(shared_out if config.adds_up else [])]
        self._nothing = [math.nan] * len(results)
        molecules.write([header_of(source.columns, results, config.on_error)])
        component, descriptor = ["component"] if names.components else [], ["descriptor"] if described else []
        parts.write(
            [["row", "molecule", *component, "part", "atoms", "elements", *descriptor, "contribution" if config.adds_up else "attention"]]
        )

    @property
    def shares(self) -> dict[str, float]:
        """The share of the explained predictions that atoms and bonds, and each group of descriptors, have in their sizes."""
        return shares_of(self._sizes)

    def write(self, chunk: Explained) -> None:
        """Write the rows of a chunk."""
        for place, before, behind in written_rows(chunk, self._config.on_error):
            found, numbers = chunk.contributions.get(place), self._nothing
            if found is not None:
                numbers = [found.prediction, *(self._shared_out(found) if self._config.adds_up else [])]
                self._write_parts(chunk, place, found)
            self._molecules.write([[*before, *(format(number, _FORM) for number in numbers), *behind]])

    def _shared_out(self, found: Contributions) -> list[float]:
        """Return the baseline, the difference that contributions share out, what each group contributes, and the error, and count them."""
        totals = self._names.descriptors.totals(found)
        self._sizes.update({name: abs(total) for name, total in totals.items()})
        self.worst = max(self.worst, found.relative_error)
        self.beyond += found.relative_error > self._config.tolerance
        return [found.baseline, found.prediction - found.baseline, *(totals.values() if len(totals) > 1 else []), found.error]

    def _write_parts(self, chunk: Explained, place: int, found: Contributions) -> None:
        row, text, molecule = chunk.start + place, shown_row(chunk, place), chunk.records[place].molecule
        components, names = self._names.components, self._names.descriptors.names
        items, drawn = molecule.split("\n") if components else [molecule], []
        for number, (component, item, parts) in enumerate(zip(components or [""], items, found.of_molecules, strict=True)):
            sides = sides_of_graph(item, self._names.features, self._kind, self._names.standardize, number)
            before = [str(row), text, *([component] if components else [])]
            between = [""] if names else []
            self._parts.write([[*before, *cells, *between, format(value, _FORM)] for cells, value in part_rows(sides, parts)])
            drawn.append((item, on_drawn_atoms(parts, 1 + max(int(side.atoms.max()) for side in sides))))
        before = [str(row), text, *([""] if components else []), "descriptor", "", ""]
        contributing = zip(names, found.descriptors.tolist(), strict=True)
        self._parts.write([[*before, name, format(value, _FORM)] for name, value in contributing if value != 0 or self._names.share == 1])
        self.gallery.add(chunk, place, drawn, found)


def part_rows(sides: Sequence[Side], found: Parts) -> Iterator[tuple[list[str], float]]:
    """Yield a row of the table of contributions for every atom, and then for every bond.

    Each row has three cells and the contribution: "atom" or "bond", the index of the atom or the indices of the bond's two atoms, and the
    element or elements. The atoms of the graph that no side has are hydrogens.
    """
    elements = ["H"] * len(found.atoms)
    for side in sides:
        for atom, place in zip(side.mol.GetAtoms(), side.atoms.tolist(), strict=True):
            elements[place] = atom.GetSymbol()
    for atom, value in enumerate(found.atoms.tolist()):
        yield ["atom", str(atom), elements[atom]], value
    for (one, other), value in zip(found.ends.tolist(), found.bonds.tolist(), strict=False):  # bonds may be empty, see Parts
        yield ["bond", f"{one}-{other}", f"{elements[one]}-{elements[other]}"], value


@contextmanager
def open_folder(folder: Path, config: ExplainConfig, names: Names, molecules: Molecules) -> Iterator[ExplanationFolder]:
    """Open the tables of a folder that exists. They, pictures and the page appear when the block ends without an error."""
    with ExitStack() as stack:
        tables = [stack.enter_context(open_table(folder / name)) for name in (MOLECULES, CONTRIBUTIONS)]
        opened = ExplanationFolder(Gallery(folder, config, names, molecules), config, names, molecules, *tables)
        yield opened
        opened.gallery.close(opened.shares)
