"""Says how many molecules the test parts of repeats share, on which the deviation over repeats depends."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import numpy as np

from molgcn.data.splits.parts import IN_WORDS
from molgcn.data.splits.saved import load_split

log = logging.getLogger(__name__)


def report_overlap(folders: Sequence[Path], part: str) -> None:
    """Log the mean share of a repeat's part that another repeat's part has too, and warn of parts that are the same.

    Where a few large scaffolds or groups always train, draws of a split resemble each other, and so do their errors.

    Args:
        folders: the folders of one training of each repeat.
        part: the name of the part.
    """
    rows = [load_split(folder / "splits.json")[part] for folder in folders]
    shares = [len(np.intersect1d(one, other)) / max(min(len(one), len(other)), 1) for one, other in combinations(rows, 2)]
    name, mean = IN_WORDS[part], f"{np.mean(shares):.0%}"
    if (same := len(rows) - len({tuple(sorted(one.tolist())) for one in rows})) > 0:
        log.warning(
            "%d of the %d repeats have the %s part of another one (two share %s on average), so that the deviation over them says little. "
            "Use other dataset.split_fractions, or dataset.split=cv, which tests on each molecule once",
            *(same, len(rows), name, mean),
        )
    else:
        log.info("The %s parts of two repeats share %s of their molecules on average", name, mean)
