"""Joins separate files for training, validation and test into one source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import accumulate, chain
from pathlib import Path

import numpy as np

from molgcn.data.config import DatasetConfig
from molgcn.data.sources.base import RawMolecules, Source
from molgcn.data.strings import PackedStrings
from molgcn.errors import UserError


def open_files(open_source: Callable[[DatasetConfig], Source], config: DatasetConfig) -> Source:
    """Open `dataset.path`, `val_path` and `test_path` as one source, whose rows are counted through all files."""
    for part in ("val", "test"):
        path = config.files.get(part)
        if path is not None and not Path(path).expanduser().is_file():
            raise UserError(f"dataset.{part}_path={path} is not a file. Give an existing one, with the columns of {config.path}.")
    sources = [open_source(replace(config, path=path, val_path=None, test_path=None)) for path in config.files.values()]
    first, names = sources[0], [source.title for source in sources]

    def column(name: str) -> Sequence[str]:
        return PackedStrings.from_strings(chain.from_iterable(source.column(name) for source in sources if source.column is not None))

    return replace(
        first,
        title=" and ".join(filter(None, (", ".join(names[:-1]), names[-1]))),
        identity={"files": {part: source.identity for part, source in zip(config.files, sources, strict=True)}},
        read=lambda: join_rows([source.read() for source in sources], names),
        benchmark=None,
        column=None if first.column is None else column,
        files=tuple(names),
    )


def join_rows(parts: Sequence[RawMolecules], names: Sequence[str]) -> RawMolecules:
    """Join the rows of several files, which must all hold SMILES or all mol blocks."""
    kinds = {part.kind: name for part, name in zip(parts, names, strict=True)}
    if len(kinds) > 1:
        raise UserError(f"{' and '.join(kinds.values())} are files of different kinds ({', '.join(kinds)}). Give files of one kind.")
    starts = [0, *accumulate(part.num_rows for part in parts)][:-1]
    bounds = [part.bounds for part in parts]
    if any(part is not None for part in bounds):  # files without bounds have exact values
        bounds = [np.zeros_like(part.targets) if part.bounds is None and part.targets is not None else part.bounds for part in parts]
    return RawMolecules(
        items=PackedStrings.from_strings(chain.from_iterable(part.items for part in parts)),
        rows=np.concatenate([part.rows + start for part, start in zip(parts, starts, strict=True)]),
        targets=_one_below_another([part.targets for part in parts]),
        bounds=_one_below_another(bounds),
        weights=_one_below_another([part.weights for part in parts]),
        descriptors=_one_below_another([part.descriptors for part in parts]),
        lists={name: [*chain.from_iterable(part.lists[name] for part in parts)] for name in parts[0].lists},
        kind=parts[0].kind,
        label=parts[0].label,
        left_out=[replace(one, row=one.row + start) for part, start in zip(parts, starts, strict=True) for one in part.left_out],
        files=tuple(zip(names, map(int, starts), strict=True)),
    )


def _one_below_another(arrays: Sequence[np.ndarray | None]) -> np.ndarray | None:
    """Concatenate the arrays that are not None, or return None if there are none."""
    given = [array for array in arrays if array is not None]
    return np.concatenate(given) if given else None
