"""What a source of molecules hands to the loader."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from molgcn.data.featurize import Kind
from molgcn.data.skipped_row import SkippedRow


@dataclass
class RawMolecules:
    """The rows of a source before featurisation.

    Attributes:
        items: SMILES, or mol blocks.
        rows: int64 [M], each item's row number in the source.
        targets: float64 [M, T], NaN where missing; None when `label` is computed from the molecules.
        kind: what the items are.
        label: name in :data:`molgcn.data.labels.LABELS`, or None.
        bounds: [M, T], -1 or 1 where a target is a bound from above or below, else 0; None where there are none.
        weights: [M], how much each row weighs, or None.
        left_out: rows that do not belong to the set, with the reason.
        descriptors: float64 [M, K], NaN where missing, of the columns that `dataset.descriptors` names; None where it names none.
        files: name and first row of each file, where the source is several.
        components: where a row is several molecules, the k columns of their SMILES; `items` are then those of a row, joined by dots.
    """

    items: Sequence[str]
    rows: np.ndarray
    targets: np.ndarray | None = None
    kind: Kind = "smiles"
    label: str | None = None
    left_out: list[SkippedRow] = field(default_factory=list)
    bounds: np.ndarray | None = None
    weights: np.ndarray | None = None
    descriptors: np.ndarray | None = None
    files: tuple[tuple[str, int], ...] = ()
    components: Sequence[Sequence[str]] = ()

    def take(self, places: np.ndarray) -> RawMolecules:
        """Return the rows at `places`, int64 [m]."""
        chosen: dict[str, Any] = {"items": [self.items[place] for place in places.tolist()], "rows": self.rows[places]}
        for name in ("targets", "bounds", "weights", "descriptors"):
            values = getattr(self, name)
            chosen[name] = None if values is None else values[places]
        chosen["components"] = [[column[place] for place in places.tolist()] for column in self.components]
        return replace(self, **chosen)


@dataclass
class Source:
    """An opened source: cheap to make, read only when its packed set is not cached.

    Attributes:
        title: file, folder or name, for messages.
        features: the featuriser to use.
        target_names: T names.
        target_units: T units ("" = none).
        identity: content hashes and options that determine the packed set, JSON-like.
        read: reads all rows.
        benchmark: row numbers of the source's own train, val and test, or None when it has none.
        column: reads a column of the source as text, one value a row, or None when it has no columns.
        files: names of its files, where they are several.
    """

    title: str
    features: str
    target_names: tuple[str, ...]
    target_units: tuple[str, ...]
    identity: dict[str, Any]
    read: Callable[[], RawMolecules]
    benchmark: Callable[[], dict[str, np.ndarray]] | None = None
    column: Callable[[str], Sequence[str]] | None = None
    files: tuple[str, ...] = ()
