"""Features of atoms and bonds that models take beside those of their featuriser, given with the rows of a file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from molgcn.data.formats import Record
from molgcn.data.own_features import PREFIXES, check_own_features, with_own_features
from molgcn.data.packed import PackedMolecules
from molgcn.data.row_matrices import RowMatrices, read_row_matrices
from molgcn.errors import UserError, counted
from molgcn.screening.descriptors import as_numbers

Names = Mapping[str, Sequence[str]]
"""The names of a model's own features, by what they describe: "atom" or "bond"."""


def records_with_own_features(records: Iterator[Record], wanted: Names, paths: Mapping[str, str | None], source: str) -> Iterator[Record]:
    """Return the rows of a source with the own features that models take, of a .npz file for each kind or None.

    Raises:
        UserError: at once when a file is missing or does not fit the model, and while rows are read when it has another number of rows.
    """
    given: dict[str, RowMatrices] = {}
    for of, path in paths.items():
        matrices = None if path is None else read_row_matrices(Path(path).expanduser(), f"{of}_features", PREFIXES[of])
        width = None if matrices is None else len(matrices.names)
        check_own_features(width, wanted[of], of, f"{of}_features=<file.npz>", f"{of}_features={path}")
        if matrices is not None:
            given[of] = matrices
    return _records(records, given, source) if given else records


def given_own_features(
    records: Iterator[Record], count: int, wanted: Names, arrays: Mapping[str, Sequence[np.ndarray] | None]
) -> Iterator[Record]:
    """Return M rows in memory with own features, for each kind M matrices with a row for each atom or bond, or None.

    Features that are missing, or of another number or shape, are a UserError.
    """
    given: dict[str, RowMatrices] = {}
    for of, values in arrays.items():
        names, option = wanted[of], f"{of}_features"
        check_own_features(None if values is None else len(names), names, of, f"{option}=")
        if values is None:
            continue
        if len(values) != count:
            raise UserError(f"{option}= has {len(values)} matrices for {count} molecules. Give one for each.")
        matrices = [as_numbers(one, f"{option}=, molecule {place}", f"[{of}s, {len(names)}]") for place, one in enumerate(values)]
        for place, one in enumerate(matrices):
            if one.size and (one.ndim != 2 or one.shape[1] != len(names)):
                raise UserError(f"{option}=, molecule {place}: it has shape {list(one.shape)}; expected [{of}s, {len(names)}].")
        given[of] = RowMatrices.of(matrices, names)
    return _records(records, given, "the list of SMILES") if given else records


def attach_own_features(
    molecules: PackedMolecules, kept: np.ndarray, records: Sequence[Record], wanted: Names
) -> tuple[PackedMolecules | None, np.ndarray, dict[int, str]]:
    """Return molecules with the own features of their records, at the positions `kept`, or None where no molecule can be used.

    Their positions among the records follow, int64, and the reasons why others are left out, by position.
    """
    given = {
        of: RowMatrices.of([records[place].own_features[of] for place in kept.tolist()], names) if names else None
        for of, names in wanted.items()
    }
    found, reasons = with_own_features(molecules, given["atom"], given["bond"])
    return found, np.delete(kept, [*reasons]), {int(kept[place]): reason for place, reason in reasons.items()}


def _records(records: Iterable[Record], given: Mapping[str, RowMatrices], source: str) -> Iterator[Record]:
    count = 0
    for record in records:
        for of, matrices in given.items():
            if count == len(matrices):
                raise UserError(f"{of}_features= has the matrices of {len(matrices):,} molecules, and {source} has more rows.")
        yield record._replace(own_features={of: matrices[count] for of, matrices in given.items()})
        count += 1
    for of, matrices in given.items():
        if count < len(matrices):
            raise UserError(f"{of}_features= has the matrices of {len(matrices):,} molecules, and {source} has {counted(count, 'row')}.")
