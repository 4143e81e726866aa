"""Predicts records, in order and in constant memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from molgcn.data.applicability import Contents
from molgcn.data.formats import Kind, Record
from molgcn.files.column import Column
from molgcn.screening.beside import columns_of
from molgcn.screening.chunk import Chunk
from molgcn.screening.ensemble import Ensemble
from molgcn.screening.ready import Ready, prepare_records
from molgcn.training.inference import combined

NOT_FINITE = "the model's output is not a finite number"


@dataclass(frozen=True)
class Predicted(Chunk):
    """R rows with their predictions.

    Attributes:
        contents: the elements and sizes of the molecules, counted.
        values: float64 [R, P], the columns of predictions, NaN where there is an error.
        deviation: float64 [R, P], the standard deviation over models and passes with dropout. None for a single pass.
        predicted: the columns of predictions and their deviations.
        beside: further columns; see :func:`molgcn.screening.beside.columns_of`.
    """

    contents: Contents
    values: np.ndarray
    deviation: np.ndarray | None
    predicted: list[Column]
    beside: list[Column]


def predict_records(
    ensemble: Ensemble,
    records: Iterable[Record],
    kind: Kind,
    batch_size: int,
    num_workers: int | None,
    domain: Sequence[Path] = (),
    members: bool = False,
) -> Iterator[Predicted]:
    """Predict records, `batch_size` at a time.

    Args:
        ensemble: the models.
        records: the rows, read as they are needed.
        kind: the format of their molecules.
        batch_size: the number of rows that are featurised and predicted at once.
        num_workers: the number of processes that featurise. 0 means none, and None one per core from 10,000 rows on.
        domain: index files of the training molecules to compare with.
        members: whether the predictions of every pass have columns of their own.

    Raises:
        UserError: when a worker process dies, or a record cannot be read.
    """
    for ready in prepare_records(ensemble.inputs, records, kind, batch_size, num_workers, domain, ensemble.tree_generators):
        yield _predicted(ensemble, ready, members)


def _predicted(ensemble: Ensemble, ready: Ready, members: bool) -> Predicted:
    shape = len(ready.records), ensemble.task.num_predictions
    values, deviation = np.full(shape, np.nan), np.full(shape, np.nan) if ensemble.num_passes > 1 else None
    passes = np.full((ensemble.num_passes, *shape), np.nan)
    errors, kept = dict(ready.errors), ready.kept
    if ready.molecules is not None:
        found = ensemble.predict(ready.molecules, ready.start)
        mean, std = combined(ensemble.task, found)
        finite = np.isfinite(mean).all(axis=1)
        errors |= dict.fromkeys(kept[~finite].tolist(), NOT_FINITE)
        values[kept[finite]], passes[:, kept[finite]] = mean[finite], found[:, finite]
        if deviation is not None and std is not None:
            deviation[kept[finite]] = std[finite]
    columns = columns_of(ensemble, values, deviation, ready.distance, passes if members else None)
    return Predicted(ready.start, ready.records, ready.smiles, errors, ready.contents, values, deviation, *columns)
