"""Compare two programs on the same molecules, splits and seeds in a table of paired differences."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from molgcn_benchmark.results import Row

KEY = ("data", "split", "program", "seed")
EPOCH = "epoch_seconds"  # the column with the time of an epoch


def paired_difference(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """Return the mean of the differences ours - theirs and its standard error, which is NaN for a single pair."""
    differences = [one - other for one, other in zip(ours, theirs, strict=True)]
    error = statistics.stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else math.nan
    return statistics.mean(differences), error


def sheet(rows: Sequence[Row], ours: str, theirs: str, time: str | None = "fit_seconds") -> list[str]:
    """Return a Markdown table with a line for each set and split, from the seeds that both programs have.

    Args:
        rows: rows with the columns :data:`KEY`, `metric`, `rising` (1 where more is better), `test`, that of `time`, and `other_seconds`
            (time of the rest of the command).
        ours: name of the program whose advantage is shown.
        theirs: name of the other program.
        time: the column with the time of the training alone, or of an epoch of it. None shows no times.
    """
    columns = [
        "better by",
        "in standard errors",
        *(["epoch, s" if time == EPOCH else "training, s", "times faster", "rest, s"] if time else []),
    ]
    lines = [
        "| " + " | ".join(["data", "split", "seeds", "metric", f"`{ours}`", f"`{theirs}`", *columns]) + " |",
        "|---|---|---:|---|" + "---:|" * (2 + len(columns)),
    ]
    for (data, split), pairs in _by_split(rows, ours, theirs).items():
        lines.append("| " + " | ".join([data, split, str(len(pairs)), *_cells(pairs, time)]) + " |")
    return lines


def mean_standardised_difference(rows: Sequence[Row], ours: str, theirs: str) -> float:
    """Return the mean over all sets and splits of the advantage of `ours` in standard deviations of the paired differences.

    Sets and splits with less than two pairs, or without a deviation, do not count.
    """
    found = []
    for pairs in _by_split(rows, ours, theirs).values():
        mean, error = paired_difference(*_columns(pairs, "test"))
        if error > 0:
            found.append((mean if pairs[0][0]["rising"] else -mean) / error / math.sqrt(len(pairs)))
    return statistics.mean(found) if found else math.nan


def _by_split(rows: Sequence[Row], ours: str, theirs: str) -> dict[tuple[str, str], list[tuple[Row, Row]]]:
    """Return the rows of both programs for the seeds that both have, by set and split."""
    by_key: Mapping[tuple, Row] = {tuple(row[name] for name in KEY): row for row in rows}
    found: dict[tuple[str, str], list[tuple[Row, Row]]] = {}
    for (data, split, program, seed), row in by_key.items():
        if program == ours and (data, split, theirs, seed) in by_key:
            found.setdefault((data, split), []).append((row, by_key[data, split, theirs, seed]))
    return found


def _cells(pairs: Sequence[tuple[Row, Row]], time: str | None) -> list[str]:
    first = pairs[0][0]
    tests = _columns(pairs, "test")
    mean, error = paired_difference(*tests)
    better = mean if first["rising"] else -mean
    cells = [first["metric"], *map(_spread, tests), f"{better:+.3f}", f"{better / error:+.1f}" if error > 0 else ""]
    if time is None:
        return cells
    fit, rest = ([statistics.median(values) for values in _columns(pairs, name)] for name in (time, "other_seconds"))
    return [
        *cells,
        " / ".join(f"{value:.{3 if time == EPOCH else 1}f}" for value in fit),
        f"{fit[1] / fit[0]:.1f}",
        f"{rest[0]:.1f} / {rest[1]:.1f}",
    ]


def _columns(pairs: Sequence[tuple[Row, Row]], name: str) -> tuple[list, list]:
    """Return a column's values of our rows, and of theirs."""
    return [one[name] for one, _ in pairs], [other[name] for _, other in pairs]


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.3f}" + (f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else "")
