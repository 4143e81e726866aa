"""The work of a worker process: it turns molecules into packed arrays.

This module imports neither torch nor Lightning, which would take seconds in every process.
"""

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
from molgcn.data.reaction_smiles import joined
from molgcn.domain.distance import distance_to_all


@dataclass(frozen=True)
class Prepared:
    """Consecutive rows that a worker has featurised.

    Attributes:
        molecules: the m molecules that can be predicted. None when there is none.
        kept: int64 [m], the rows of these molecules, counted from the first row.
        smiles: the m SMILES that RDKit writes for these molecules, or None when the input was SMILES.
        failures: the row and the reason of every molecule that cannot be predicted.
        contents: the elements and sizes of the molecules, counted.
        distance: float64 [m, 4], the distances from the training molecules, or None; see
            :func:`molgcn.domain.distance.distance_to_all`.
    """

    molecules: PackedMolecules | None
    kept: np.ndarray
    smiles: list[str] | None
    failures: list[tuple[int, str]]
    contents: Contents
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
    """Parse, featurise and pack molecules by :func:`featurize_chunk`, and compare them with the training molecules.

    Args:
        items: SMILES or mol blocks. With `components`, each item has one SMILES per component, one per line.
        features: the name of the featuriser.
        kind: the format of the items.
        bonds: whether bonds get features. They do anyway where there is a `domain`.
        components: the names of the molecules of a row; empty where a row is one molecule.
        domain: index files of training molecules to compare with.
        **options: further options of the featuriser.
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
