"""The classes of a source of molecules and of its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from molgcn.data.featurize import Kind
from molgcn.data.rows import SkippedRow


@dataclass
class RawMolecules:
    """The rows of a source before featurisation."""

    items: Sequence[str]  # M SMILES or mol blocks
    rows: np.ndarray  # int64 [M], row number of each item in the source
    targets: np.ndarray | None = None  # float64 [M, T], NaN where missing, or None when `label` is computed from the molecules
    kind: Kind = "smiles"  # what the items are
    label: str | None = None  # name of a label in `molgcn.data.labels.LABELS`, or None
    left_out: list[SkippedRow] = field(default_factory=list)  # rows that do not belong to the set, with the reason
    # float32 [M, T], -1 where the true value is below the target, 1 where it is above, else 0, or None where there are no bounds
    bounds: np.ndarray | None = None
    weights: np.ndarray | None = None  # float64 [M], weight of each row, or None
    # float64 [M, K], NaN where missing, the columns that `dataset.descriptors` names, or None where it names none
    descriptors: np.ndarray | None = None
    files: tuple[tuple[str, int], ...] = ()  # name and first row of each file of a source of several files, else empty
    # the k columns of SMILES of a source whose rows are several molecules, else empty. `items` are then the SMILES of each row joined by
    # dots
    components: Sequence[Sequence[str]] = ()
    # text of the columns that `dataset.atom_targets` and `bond_targets` name, M cells each
    lists: Mapping[str, Sequence[str]] = field(default_factory=dict)
    num_rows: int = 0  # number of rows of the whole source. Default: the last row of `rows` and `left_out`, and all before it

    def __post_init__(self) -> None:
        """Count the rows where that was not done."""
        self.num_rows = max(self.num_rows, int(self.rows.max(initial=-1)) + 1, *(skipped.row + 1 for skipped in self.left_out), 0)

    def take(self, places: np.ndarray) -> RawMolecules:
        """Return the rows at `places`, int64 [m]."""
        chosen: dict[str, Any] = {"items": [self.items[place] for place in places.tolist()], "rows": self.rows[places]}
        for name in ("targets", "bounds", "weights", "descriptors"):
            values = getattr(self, name)
            chosen[name] = None if values is None else values[places]
        chosen["components"] = [[column[place] for place in places.tolist()] for column in self.components]
        chosen["lists"] = {name: [column[place] for place in places.tolist()] for name, column in self.lists.items()}
        return replace(self, **chosen)


@dataclass
class Source:
    """An opened source. Opening it is fast, and its rows are read only when its packed set is not cached."""

    title: str  # file, folder or name of the source, for messages
    features: str  # name of the featuriser to use
    target_names: tuple[str, ...]  # names of the T targets
    target_units: tuple[str, ...]  # units of the T targets, "" for none
    identity: dict[str, Any]  # content hashes and options that determine the packed set, JSON-like
    read: Callable[[], RawMolecules]  # function that reads all rows
    # function that returns the row numbers of the source's own train, val and test, or None if it has no such split
    benchmark: Callable[[], dict[str, np.ndarray]] | None = None
    # function that reads a column as text with one entry for each row, or None if the source has no columns
    column: Callable[[str], Sequence[str]] | None = None
    files: tuple[str, ...] = ()  # names of the files of a source of several files, else empty
