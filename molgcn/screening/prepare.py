"""What a worker process does: molecules in, packed arrays out. It imports neither torch nor Lightning, which would take seconds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from molgcn.data.applicability import Contents, contents_of
from molgcn.data.featurize import featurize_chunk
from molgcn.data.formats import Kind
from molgcn.data.packed import PackedMolecules


@dataclass(frozen=True)
class Prepared:
    """A stretch of rows.

    Attributes:
        molecules: those that can be predicted; None when there is none.
        kept: int64, their places in the stretch.
        smiles: their SMILES written by RDKit, or None when the input was SMILES.
        failures: place and reason of every other row.
        contents: what the molecules hold.
    """

    molecules: PackedMolecules | None
    kept: np.ndarray
    smiles: list[str] | None
    failures: list[tuple[int, str]]
    contents: Contents


def prepare(
    items: Sequence[str], *, features: str, kind: Kind, bonds: bool, generators: Sequence[str] = (), standardize: str = "none"
) -> Prepared:
    """Parses, featurises and packs a stretch of SMILES or mol blocks; other arguments as of :func:`featurize_chunk`."""
    done = featurize_chunk(
        items, features=features, kind=kind, label=None, stop=False, bonds=bonds, generators=generators, standardize=standardize
    )
    if done.molecules is None:
        return Prepared(None, done.kept, done.smiles, done.failures, Contents())
    smiles = done.smiles or [items[place] for place in done.kept.tolist()]
    return Prepared(done.molecules, done.kept, done.smiles, done.failures, contents_of(done.molecules, smiles))
