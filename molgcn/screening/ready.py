"""Reads records and featurises them in worker processes, in order and in constant memory.

This module imports neither torch nor Lightning, which would take seconds in every process, so that it also makes the inputs of exported
networks (:mod:`molgcn.onnx_inputs`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from molgcn.data.applicability import Contents, contents_of
from molgcn.data.components import featurize_components
from molgcn.data.descriptors.attach import with_descriptors
from molgcn.data.featurize import Featurized, featurize_chunk
from molgcn.data.formats import Kind, Record
from molgcn.data.packed import PackedMolecules
from molgcn.data.reaction_smiles import joined
from molgcn.data.workers import POOL_THRESHOLD, choose_workers, map_stream
from molgcn.domain.distance import distance_to_all
from molgcn.screening.chunk import Chunk
from molgcn.screening.inputs import ModelInputs
from molgcn.screening.own_features import attach_own_features

MOLECULES_AT_ONCE = 1024  # of a list in memory, read by one process
CHARACTERS = 16_000_000  # the limit for the records that are featurised at once


@dataclass(frozen=True)
class Prepared:
    """Consecutive rows that a worker has featurised."""

    molecules: PackedMolecules | None  # the m molecules that can be predicted. None when there is none
    kept: np.ndarray  # int64 [m], the rows of these molecules, counted from the first row
    smiles: list[str] | None  # the m SMILES that RDKit writes for these molecules, or None when the input was SMILES
    failures: list[tuple[int, str]]  # the row and the reason of every molecule that cannot be predicted
    contents: Contents  # the elements and sizes of the molecules, counted
    # float64 [m, 4], the distances from the training molecules, or None; see :func:`molgcn.domain.distance.distance_to_all`
    distance: np.ndarray | None = None

    def smiles_of(self, rows: int) -> list[str] | None:
        """Return the SMILES of each row, "" where it is not a molecule. Return None when the input was SMILES."""
        if self.smiles is None:
            return None
        texts = dict(zip(self.kept.tolist(), self.smiles, strict=True))
        return [texts.get(place, "") for place in range(rows)]


def prepare(
    items: Sequence[str],
    *,
    features: str,
    kind: Kind,
    bonds: bool,
    components: Sequence[str] = (),
    domain: Sequence[Path] = (),
    **options: Any,
) -> Prepared:
    """Parse, featurise and pack molecules by :func:`featurize_chunk`, and compare them with those of index files, `domain`.

    Items are SMILES or mol blocks. With `components`, the names of the molecules of a row, each item has one SMILES per component, one per
    line. Bonds get features if `bonds` says so or there is a `domain`.
    """
    bonds = bonds or bool(domain)

    def featurize(some: Sequence[str], column: str = "") -> Featurized:
        component = components.index(column) if components else 0
        return featurize_chunk(some, features=features, kind=kind, label=None, bonds=bonds, component=component, **options)

    if components:
        done = featurize_components(list(zip(*(item.split("\n") for item in items), strict=True)), components, featurize)
    else:
        done = featurize(items)
    if done.molecules is None:
        return Prepared(None, done.kept, done.smiles, done.failures, Contents())
    molecules = PackedMolecules.of(done.molecules)
    smiles = done.smiles or [joined(items[place].split("\n")) for place in done.kept.tolist()]
    distance = distance_to_all(domain, molecules, smiles, options.get("standardize", "none")) if domain else None
    return Prepared(molecules, done.kept, done.smiles, done.failures, contents_of(molecules, smiles), distance)


@dataclass(frozen=True)
class Ready(Chunk):
    """R rows whose molecules are ready for a network."""

    contents: Contents  # the elements and sizes of the molecules, counted
    molecules: PackedMolecules | None  # the molecules that can be predicted, with their descriptors. None when there is none
    kept: np.ndarray  # int64, the rows of these molecules, counted from the first of the R rows
    # [R, 4], the distances from the training molecules, or None; see :func:`molgcn.domain.distance.distance_to_all`
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
