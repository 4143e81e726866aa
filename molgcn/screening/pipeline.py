"""Records in, predictions out, in order and in constant memory: read, featurise in worker processes, predict."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice

import numpy as np

from molgcn.data.applicability import Contents
from molgcn.data.descriptors.attach import with_descriptors
from molgcn.data.formats import Kind, Record
from molgcn.data.workers import POOL_THRESHOLD, choose_workers, map_stream
from molgcn.screening.ensemble import Ensemble, combined
from molgcn.screening.prepare import Prepared, prepare

CHARACTERS = 16_000_000  # of the records that are featurised at once
NOT_FINITE = "the model's output is not a finite number"


@dataclass(frozen=True)
class Predicted:
    """A stretch of R rows.

    Attributes:
        start: number of the first row, counted from 0.
        records: R rows of the input.
        smiles: R SMILES written by RDKit, "" for what is no molecule; None when the input was SMILES.
        values: float64 [R, P], columns of predictions, NaN where there is an error.
        deviation: float64 [R, P], the standard deviation over models and passes with dropout; None for a single one.
        errors: number in the stretch, and why there is no prediction.
        contents: what the molecules hold.
    """

    start: int
    records: list[Record]
    smiles: list[str] | None
    values: np.ndarray
    deviation: np.ndarray | None
    errors: dict[int, str]
    contents: Contents


def predict_records(
    ensemble: Ensemble, records: Iterable[Record], kind: Kind, batch_size: int, num_workers: int | None
) -> Iterator[Predicted]:
    """Predicts records, `batch_size` at a time.

    Args:
        ensemble: the models.
        records: the rows, read as they are needed.
        kind: what their molecules are.
        batch_size: rows featurised and predicted at once.
        num_workers: processes that featurise; 0 none, None one a core for streams of 10,000 rows and more.

    Raises:
        UserError: when a worker process dies, or while the records are read.
    """
    chunks = _chunks(iter(records), batch_size)
    first = list(islice(chunks, -(-POOL_THRESHOLD // batch_size))) if num_workers is None else []
    workers = choose_workers(sum(len(records) for _, records in first) if num_workers is None else sys.maxsize, num_workers)
    work = partial(
        prepare,
        features=ensemble.features,
        kind=kind,
        bonds=ensemble.sees_bonds,
        generators=ensemble.descriptors.generators,
        standardize=ensemble.standardize,
    )
    items = (([record.molecule for record in records], (start, records)) for start, records in chain(first, chunks))
    del first
    for prepared, (start, rows) in map_stream(work, items, workers):
        yield _predicted(ensemble, prepared, start, rows)


def _chunks(records: Iterator[Record], size: int) -> Iterator[tuple[int, list[Record]]]:
    """At most `size` records at a time, fewer where they are long, with the number of the first."""
    start, characters = 0, 0
    chunk: list[Record] = []
    for record in records:
        chunk.append(record)
        characters += len(record.molecule) + sum(map(len, record.cells))
        if len(chunk) == size or characters > CHARACTERS:
            yield start, chunk
            start, characters, chunk = start + len(chunk), 0, []
    if chunk:
        yield start, chunk


def _predicted(ensemble: Ensemble, prepared: Prepared, start: int, records: list[Record]) -> Predicted:
    shape = len(records), ensemble.task.num_predictions
    values, deviation = np.full(shape, np.nan), np.full(shape, np.nan) if ensemble.num_passes > 1 else None
    errors = {place: record.error for place, record in enumerate(records) if record.error} | dict(prepared.failures)
    usable = np.array([place not in errors for place in prepared.kept.tolist()], bool)
    if prepared.molecules is not None and usable.any():
        kept = prepared.kept[usable]
        molecules = prepared.molecules if usable.all() else prepared.molecules[usable]
        if ensemble.descriptors.given:
            given = np.array([records[place].descriptors for place in kept.tolist()])
            molecules = with_descriptors(molecules, given, ensemble.descriptors.given)
        mean, std = combined(ensemble.task, ensemble.predict(molecules, start))
        finite = np.isfinite(mean).all(axis=1)
        errors |= dict.fromkeys(kept[~finite].tolist(), NOT_FINITE)
        values[kept[finite]] = mean[finite]
        if deviation is not None and std is not None:
            deviation[kept[finite]] = std[finite]
    smiles = None
    if prepared.smiles is not None:
        smiles = [""] * len(records)
        for place, text in zip(prepared.kept.tolist(), prepared.smiles, strict=True):
            smiles[place] = text
    return Predicted(start, records, smiles, values, deviation, errors, prepared.contents)
