"""The descriptors that models take beside molecules, read with the rows of a file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from molgcn.data.components import names_of_row
from molgcn.data.descriptors.attach import unusable
from molgcn.data.descriptors.generators import generated_names
from molgcn.data.descriptors.given import read_descriptors
from molgcn.data.formats import Molecules, Record
from molgcn.data.tables import number
from molgcn.errors import UserError, counted, listed, nearest, shown
from molgcn.screening.components import one_item

if TYPE_CHECKING:
    from molgcn.training.predictor import MoleculePredictor


@dataclass(frozen=True)
class DescriptorInput:
    """The descriptors that a model was trained with."""

    columns: tuple[str, ...]  # the columns of its data set that are descriptors
    given: tuple[str, ...]  # the names of all descriptors that come with the rows: first the columns, then those of a file
    generators: tuple[str, ...]  # the generators that compute the other descriptors

    @classmethod
    def of(cls, module: MoleculePredictor) -> DescriptorInput:
        """Return the descriptors that a module was trained with."""
        dataset, names = module.config.dataset, module.descriptor_names
        generators = tuple(dataset.descriptor_generators or ())
        given = names[: len(names) - len(names_of_row(generated_names(generators), dataset.smiles_columns))]
        return cls(tuple(dataset.descriptors or ()), tuple(given), generators)

    @property
    def num_of_file(self) -> int:
        return len(self.given) - len(self.columns)

    def __str__(self) -> str:
        file = [f"{self.num_of_file} of a file"] if self.num_of_file else []
        return ", ".join([*self.columns, *file, *self.generators]) or "none"


def records_with_descriptors(molecules: Molecules, wanted: DescriptorInput, path: Path | None) -> Iterator[Record]:
    """Return the rows with the descriptors that models take, of the open file's columns and of a .npz file or None.

    A row that lacks a descriptor gets the reason as its error.

    Raises:
        UserError: at once when a column or the file of descriptors is missing, and while rows are read when the file has another number
            of rows.
    """
    for name in wanted.columns:
        if name not in molecules.columns:
            hint = nearest(name, molecules.columns)
            raise UserError(f"{molecules.name} has no column '{shown(name)}', a descriptor that the model was trained with.{hint}")
    if bool(wanted.num_of_file) != (path is not None):
        more = (
            f"The model takes {wanted.num_of_file} descriptors of a .npz file. Give the file for these rows with"
            if wanted.num_of_file
            else "The model takes no descriptors of a file. Leave out"
        )
        raise UserError(f"{more} descriptors=.")
    if not wanted.given:
        return molecules.records
    matrix = None if path is None else read_descriptors(path, "descriptors")[1]
    if matrix is not None and matrix.shape[1] != wanted.num_of_file:
        raise UserError(f"descriptors={path} has {matrix.shape[1]} columns; the model was trained with {wanted.num_of_file}.")
    return _records(molecules, wanted, matrix)


def smiles_records(
    smiles: Sequence[str] | Sequence[Sequence[str]], descriptors: np.ndarray | None, wanted: DescriptorInput, components: Sequence[str]
) -> Iterator[Record]:
    """Return M SMILES in memory, or M lists with one SMILES per component, as rows with descriptors [M, K] or None.

    Descriptors of another shape, or another number of molecules in a row, are a UserError.
    """
    shape = [len(smiles), len(wanted.given)]
    given = np.empty((len(smiles), 0)) if descriptors is None else as_numbers(descriptors, "descriptors=", str(shape))
    if list(given.shape) != shape:
        there = "no descriptors are given" if descriptors is None else f"descriptors has shape {list(given.shape)}"
        names = f"an array of shape {shape} with {listed(wanted.given)}" if wanted.given else "none beside those that are computed"
        raise UserError(f"The model takes {names} as descriptors=, and {there}.")
    texts = [one_item(one, components) for one in smiles]
    return (described(Record([], text), row, wanted.given) for text, row in zip(texts, given, strict=True))


def as_numbers(values: Any, where: str, shape: str) -> np.ndarray:
    """Return what a caller gives as an array of numbers, float64; UserError says where it is none, and of which shape it should be."""
    try:
        return np.asarray(values, np.float64)
    except (TypeError, ValueError) as error:
        raise UserError(f"{where}: it is not an array of numbers whose rows are equally long; expected the shape {shape}.") from error


def _records(molecules: Molecules, wanted: DescriptorInput, matrix: np.ndarray | None) -> Iterator[Record]:
    cells, count = [_Cell(molecules.columns.index(name), name, molecules.decimal_comma) for name in wanted.columns], 0
    for record in molecules.records:
        if matrix is not None and count == len(matrix):
            raise UserError(f"descriptors= has {counted(len(matrix), 'row')}, and {molecules.name} has more.")
        of_file = () if matrix is None else matrix[count]
        try:
            record = described(record, [*(cell.number(record) for cell in cells), *of_file], wanted.given)
        except ValueError as error:
            record = record._replace(error=str(error))
        yield record
        count += 1
    if matrix is not None and count < len(matrix):
        raise UserError(f"descriptors= has {counted(len(matrix), 'row')}, and {molecules.name} has {count:,}.")


class _Cell:
    """A column of numbers that is read row by row. Where they may have decimal commas, its first comma or point says which it uses."""

    def __init__(self, place: int, name: str, decimal_comma: bool) -> None:
        self._place, self._name = place, name
        self._sign = "" if decimal_comma else "."

    def number(self, record: Record) -> float:
        """Return the number in a row, NaN where it is missing, or raise ValueError for a cell that is not a number."""
        text = record.cells[self._place]
        self._sign = self._sign or next((sign for sign in ",." if sign in text), "")
        try:
            return number(text, comma=self._sign == ",")
        except ValueError:
            more = ", where rows above have decimal commas" if self._sign == "," else ""
            raise ValueError(f"its descriptor '{shown(self._name)}' is not a number: '{shown(text)}'{more}") from None


def described(record: Record, values: Sequence[float], names: Sequence[str]) -> Record:
    """Return a row with its descriptors, and with an error where one of them cannot be used."""
    reasons = unusable(np.array([values], np.float64).reshape(1, -1), names)
    return record._replace(descriptors=tuple(values), error=reasons.get(0, ""))
