"""Reads records and featurises them in worker processes, in order and in constant memory.

This module imports no torch, so that it also makes the inputs of exported networks (:mod:`molgcn.onnx_inputs`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path

import numpy as np

from molgcn.data.applicability import Contents
from molgcn.data.descriptors.attach import with_descriptors
from molgcn.data.formats import Kind, Record
from molgcn.data.packed import PackedMolecules
from molgcn.data.workers import POOL_THRESHOLD, choose_workers, map_stream
from molgcn.screening.chunk import Chunk
from molgcn.screening.inputs import ModelInputs
from molgcn.screening.own_features import attach_own_features
from molgcn.screening.prepare import Prepared, prepare

MOLECULES_AT_ONCE = 1024  # of a list in memory, read by one process
CHARACTERS = 16_000_000  # the limit for the records that are featurised at once


@dataclass(frozen=True)
class Ready(Chunk):
    """R rows whose molecules are ready for a network.

    Attributes:
        contents: the elements and sizes of the molecules, counted.
        molecules: the molecules that can be predicted, with their descriptors. None when there is none.
        kept: int64, the rows of these molecules, counted from the first of the R rows.
        distance: [R, 4], the distances from the training molecules, or None; see :func:`molgcn.domain.distance.distance_to_all`.
    """

    contents: Contents
    molecules: PackedMolecules | None
    kept: np.ndarray
    distance: np.ndarray | None


def prepare_records(
    inputs: ModelInputs,
    records: Iterable[Record],
    kind: Kind,
    batch_size: int,
    num_workers: int | None,
    domain: Sequence[Path] = (),
    tree_generators: Sequence[str] = (),
    bond_numbers: bool = False,
) -> Iterator[Ready]:
    """Featurise records, `batch_size` at a time.

    Args:
        inputs: what the models take of a row.
        records: the rows, read as they are needed.
        kind: the format of their molecules.
        batch_size: the number of rows that are featurised at once.
        num_workers: the number of processes that featurise. 0 means none, and None one per core from 10,000 rows on.
        domain: index files of the training molecules to compare with.
        tree_generators: the generators of descriptors that trees beside the models take.
        bond_numbers: whether the molecules know RDKit's number of each bond.

    Raises:
        UserError: when a worker process dies, or a record cannot be read.
    """
    chunks = _chunks(iter(records), batch_size)
    first = list(islice(chunks, -(-POOL_THRESHOLD // batch_size))) if num_workers is None else []
    workers = choose_workers(sum(len(records) for _, records in first) if num_workers is None else sys.maxsize, num_workers)
    work = partial(
        prepare,
        features=inputs.features,
        kind=kind,
        bonds=inputs.bonds,
        generators=inputs.descriptors.generators,
        tree_generators=tree_generators,
        standardize=inputs.standardize,
        domain=domain,
        components=inputs.components,
        bond_numbers=bond_numbers or bool(inputs.own_features["bond"]),
    )
    items = (([record.molecule for record in records], (start, records)) for start, records in chain(first, chunks))
    del first
    for prepared, (start, rows) in map_stream(work, items, workers):
        yield _ready(inputs, prepared, start, rows)


def _chunks(records: Iterator[Record], size: int) -> Iterator[tuple[int, list[Record]]]:
    """Yield at most `size` records at a time, fewer where they are long, with the number of the first."""
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


def _ready(inputs: ModelInputs, prepared: Prepared, start: int, records: list[Record]) -> Ready:
    errors = {place: record.error for place, record in enumerate(records) if record.error} | dict(prepared.failures)
    usable = np.array([place not in errors for place in prepared.kept.tolist()], bool)
    kept, molecules = prepared.kept[usable], None
    if prepared.molecules is not None and usable.any():
        molecules = prepared.molecules if usable.all() else prepared.molecules[usable]
        if inputs.descriptors.given:
            given = np.array([records[place].descriptors for place in kept.tolist()])
            molecules = with_descriptors(molecules, given, inputs.descriptors.given)
        if any(inputs.own_features.values()):
            molecules, kept, reasons = attach_own_features(molecules, kept, records, inputs.own_features)
            errors |= reasons
    distance = None
    if prepared.distance is not None:
        distance = np.full((len(records), prepared.distance.shape[1]), np.nan)
        distance[prepared.kept] = prepared.distance
    return Ready(start, records, prepared.smiles_of(len(records)), errors, prepared.contents, molecules, kept, distance)
