"""What a worker process does: molecules in, packed arrays out. It imports neither torch nor Lightning, which would take seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from molgcn.data.applicability import Contents, contents_of
from molgcn.data.featurize import featurize_chunk
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
    generators: Sequence[str] = (),
    standardize: str = "none",
    domain: Sequence[Path] = (),
) -> Prepared:
    """Parses, featurises and packs a stretch of SMILES or mol blocks, and compares them with the training.

    Args:
        items: SMILES or mol blocks.
        features: the featuriser.
        kind: what the items are.
        bonds: whether bonds get features.
        generators: see :func:`featurize_chunk`.
        standardize: likewise.
        domain: index files of training molecules to compare with, for which bonds get features too.
    """
    done = featurize_chunk(
        items,
        features=features,
        kind=kind,
        label=None,
        stop=False,
        bonds=bonds or bool(domain),
        generators=generators,
        standardize=standardize,
    )
    if done.molecules is None:
        return Prepared(None, done.kept, done.smiles, done.failures, Contents())
    smiles = done.smiles or [items[place] for place in done.kept.tolist()]
    distance = distance_to_all(domain, done.molecules, smiles, standardize) if domain else None
    return Prepared(done.molecules, done.kept, done.smiles, done.failures, contents_of(done.molecules, smiles), distance)
