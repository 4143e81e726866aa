"""What a worker process does: molecules in, packed arrays out. It imports neither torch nor Lightning, which would take seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from molgcn.data.applicability import Contents, contents_of
from molgcn.data.components import featurize_components
from molgcn.data.featurize import Featurized, featurize_chunk
from molgcn.data.formats import Kind
from molgcn.data.packed import PackedMolecules
from molgcn.domain.distance import distance_to_all


@dataclass(frozen=True)
class Prepared:
    """A stretch of rows.

    Attributes:
        molecules: those that can be predicted; None when there is none.
        kept: int64, their places in the stretch.
        smiles: their SMILES written by RDKit, or None when the input was SMILES.
        failures: place and reason of every other row.
        contents: what the molecules hold.
        distance: float64 [m, 4], how far they are from the training, see :func:`molgcn.domain.distance.distance_to_all`; None where
            nobody asked.
    """

    molecules: PackedMolecules | None
    kept: np.ndarray
    smiles: list[str] | None
    failures: list[tuple[int, str]]
    contents: Contents
    distance: np.ndarray | None = None

    def smiles_of(self, rows: int) -> list[str] | None:
        """Return the SMILES of each of the stretch's rows, "" for what is no molecule; None when the input was SMILES."""
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
    """Parses, featurises and packs a stretch of SMILES or mol blocks, and compares them with the training.

    Args:
        items: SMILES, mol blocks, or with `components` one SMILES of each a line.
        features: as in :func:`featurize_chunk`.
        kind: what the items are.
        bonds: whether bonds get features.
        components: names of the several molecules of a row.
        domain: index files of training molecules to compare with, for which bonds get features too.
        **options: as in :func:`featurize_chunk`.
    """
    bonds = bonds or bool(domain)

    def featurize(some: Sequence[str], column: str = "") -> Featurized:
        return featurize_chunk(some, features=features, kind=kind, label=None, stop=False, bonds=bonds, **options)

    if components:
        done = featurize_components(list(zip(*(item.split("\n") for item in items), strict=True)), components, featurize)
    else:
        done = featurize(items)
    if done.molecules is None:
        return Prepared(None, done.kept, done.smiles, done.failures, Contents())
    smiles = done.smiles or [items[place].replace("\n", ".") for place in done.kept.tolist()]
    distance = distance_to_all(domain, done.molecules, smiles, options.get("standardize", "none")) if domain else None
    return Prepared(done.molecules, done.kept, done.smiles, done.failures, contents_of(done.molecules, smiles), distance)
