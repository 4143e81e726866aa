"""The descriptors that models take beside molecules, for rows of a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from molgcn.data.descriptors.attach import unusable
from molgcn.data.descriptors.file import read_descriptors
from molgcn.data.descriptors.generators import generated_names
from molgcn.data.formats import Molecules, Record
from molgcn.data.tables import number
from molgcn.errors import UserError, nearest, shown
from molgcn.training.regressor import MoleculeRegressor


@dataclass(frozen=True)
class DescriptorInput:
    """What a model was trained with.

    Attributes:
        columns: of its data set.
        given: names of those that come with rows: the columns, then those of a file.
        generators: that compute the others.
    """

    columns: tuple[str, ...]
    given: tuple[str, ...]
    generators: tuple[str, ...]

    @classmethod
    def of(cls, module: MoleculeRegressor) -> DescriptorInput:
        """Return that of a trained module."""
        dataset, names = module.config.dataset, module.descriptor_names
        generators = tuple(dataset.descriptor_generators or ())
        given = names[: len(names) - len(generated_names(generators))]
        return cls(tuple(dataset.descriptors or ()), tuple(given), generators)

    @property
    def from_file(self) -> bool:
        """Whether some come from a file."""
        return len(self.given) > len(self.columns)

    def __str__(self) -> str:
        file = [f"{len(self.given) - len(self.columns)} of a file"] if self.from_file else []
        return ", ".join([*self.columns, *file, *self.generators]) or "none"


def records_with_descriptors(molecules: Molecules, wanted: DescriptorInput, path: Path | None) -> Iterator[Record]:
    """Yield the rows with the descriptors that come with them, each that lacks one with the reason.

    Args:
        molecules: an open file.
        wanted: what the models take.
        path: .npz file of descriptors, or None.

    Raises:
        UserError: before the first row for a column or file that is not there, after the last where the file has another number of rows.
    """
    for name in wanted.columns:
        if name not in molecules.columns:
            hint = nearest(name, molecules.columns)
            raise UserError(f"{molecules.name} has no column '{shown(name)}', a descriptor that the model was trained with.{hint}")
    if wanted.from_file != (path is not None):
        more = (
            f"The model takes {len(wanted.given) - len(wanted.columns)} descriptors of a .npz file: give that of these rows with"
            if wanted.from_file
            else "The model takes no descriptors of a file: leave out"
        )
        raise UserError(f"{more} descriptors_path=.")
    if not wanted.given:
        return molecules.records
    return _records(molecules, wanted, None if path is None else _matrix(path, wanted))


def smiles_records(smiles: Sequence[str], descriptors: np.ndarray | None, wanted: DescriptorInput) -> Iterator[Record]:
    """Return M SMILES in memory as rows.

    Args:
        smiles: M strings.
        descriptors: [M, K], those that come with them, or None.
        wanted: what the models take.

    Raises:
        UserError: for descriptors of another shape.
    """
    given = np.empty((len(smiles), 0)) if descriptors is None else np.asarray(descriptors, np.float64)
    if given.shape != (len(smiles), len(wanted.given)):
        raise UserError(f"descriptors has shape {list(given.shape)}; the model takes [{len(smiles)}, {len(wanted.given)}]: {wanted}.")
    return (described(Record([], text), row, wanted.given) for text, row in zip(smiles, given, strict=True))


def _matrix(path: Path, wanted: DescriptorInput) -> np.ndarray:
    _, values = read_descriptors(path, "descriptors_path")
    if values.shape[1] != len(wanted.given) - len(wanted.columns):
        raise UserError(
            f"descriptors_path={path} has {values.shape[1]} columns; the model was trained with {len(wanted.given) - len(wanted.columns)}."
        )
    return values


def _records(molecules: Molecules, wanted: DescriptorInput, matrix: np.ndarray | None) -> Iterator[Record]:
    places, count = [molecules.columns.index(name) for name in wanted.columns], 0
    for record in molecules.records:
        if matrix is not None and count == len(matrix):
            raise UserError(f"descriptors_path= has {len(matrix):,} rows, and {molecules.name} has more.")
        of_file = () if matrix is None else matrix[count]
        yield _with_cells(record, [record.cells[place] for place in places], of_file, wanted.given, molecules.decimal_comma)
        count += 1
    if matrix is not None and count < len(matrix):
        raise UserError(f"descriptors_path= has {len(matrix):,} rows, and {molecules.name} has {count:,}.")


def _with_cells(record: Record, cells: list[str], of_file: Sequence[float], names: Sequence[str], decimal_comma: bool) -> Record:
    values = []
    for cell, name in zip(cells, names, strict=False):
        try:
            values.append(number(cell, decimal_comma and "," in cell))
        except ValueError:
            return record._replace(error=f"its descriptor '{shown(name)}' is not a number: '{shown(cell)}'")
    return described(record, [*values, *of_file], names)


def described(record: Record, values: Sequence[float], names: Sequence[str]) -> Record:
    """Return a row with descriptors, and with the reason where one of them cannot be used."""
    reasons = unusable(np.array([values], np.float64).reshape(1, -1), names)
    return record._replace(descriptors=tuple(values), error=reasons.get(0, ""))
