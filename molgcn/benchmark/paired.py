"""Compare two programs on the same molecules, splits and seeds in a table of paired differences."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from molgcn.benchmark.results import Row

KEY = ("data", "split", "program", "seed")


def paired_difference(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float]:
    """Return the mean of the differences ours - theirs and its standard error, which is NaN for a single pair."""
    differences = [one - other for one, other in zip(ours, theirs, strict=True)]
    error = statistics.stdev(differences) / math.sqrt(len(differences)) if len(differences) > 1 else math.nan
    return statistics.mean(differences), error


def sheet(rows: Sequence[Row], ours: str, theirs: str, time: str = "fit_seconds") -> list[str]:
    """Return a Markdown table with a line for each set and split, from the seeds that both programs have.

    Args:
        rows: rows with the columns :data:`KEY`, `metric`, `rising` (1 where more is better), `test`, that of `time`, and `other_seconds`
            (time of the rest of the command).
        ours: name of the program whose advantage is shown.
        theirs: name of the other program.
        time: the column with the time of the training alone.
    """
    columns = ["better by", "in standard errors", "training, s", "times faster", "rest, s"]
    lines = [
        "| " + " | ".join(["data", "split", "seeds", "metric", f"`{ours}`", f"`{theirs}`", *columns]) + " |",
        "|---|---|---:|---|" + "---:|" * (2 + len(columns)),
    ]
    by_key: Mapping[tuple, Row] = {tuple(row[name] for name in KEY): row for row in rows}
    for data, split in dict.fromkeys((row["data"], row["split"]) for row in rows):
        pairs = [
            (one, by_key[data, split, theirs, seed])
            for (*place, seed), one in by_key.items()
            if place == [data, split, ours] and (data, split, theirs, seed) in by_key
        ]
        if pairs:
            lines.append("| " + " | ".join([data, split, str(len(pairs)), *_cells(pairs, time)]) + " |")
    return lines


def _cells(pairs: Sequence[tuple[Row, Row]], time: str) -> list[str]:
    first = pairs[0][0]
    columns = {name: tuple([pair[side][name] for pair in pairs] for side in (0, 1)) for name in ("test", time, "other_seconds")}
    mean, error = paired_difference(*columns["test"])
    better = mean if first["rising"] else -mean
    fit, other = ([statistics.median(values) for values in columns[name]] for name in (time, "other_seconds"))
    return [
        first["metric"],
        *(_spread(values) for values in columns["test"]),
        f"{better:+.3f}",
        "" if math.isnan(error) or error == 0 else f"{better / error:+.1f}",
        f"{fit[0]:.1f} / {fit[1]:.1f}",
        f"{fit[1] / fit[0]:.1f}",
        f"{other[0]:.1f} / {other[1]:.1f}",
    ]


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.3f}" + (f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else "")
