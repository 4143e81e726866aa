"""TDC's ADMET group as one sweep: the runs of all sets and seeds, and their table beside published results."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from molgcn.data.benchmark_sets import SEEDS, TDC_SETS
from molgcn.files.spreadsheet import write_csv
from molgcn.files.whole_file import write_text
from molgcn.process.tables import print_table

HEADER = ("set", "metric", "runs", "mean", "std", "Chemprop-RDKit", "MapLight")
_FALLING = ("mae",)


def expand_sets(arguments: list[str]) -> list[str]:
    """Return the arguments of a --multirun with `dataset.set=all` spelled out, and with the benchmark's seeds where none are given."""
    everything = "dataset.set=all"
    if everything not in arguments or "dataset=ogb" in arguments or not {"--multirun", "-m"} & set(arguments):
        return arguments
    found = [f"dataset.set={','.join(TDC_SETS)}" if argument == everything else argument for argument in arguments]
    return found if any(argument.startswith("seed=") for argument in found) else [*found, f"seed={','.join(map(str, SEEDS))}"]


def benchmark_rows(results: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """Return a row for each set among the results of runs: mean and standard deviation (n - 1) of its metric on the test part.

    There are none for runs on other data. The last row counts the sets that are better than what is published.
    """
    from molgcn.metrics import metric_title  # imports torch, which takes seconds

    found: dict[str, list[float]] = defaultdict(list)
    for result in results:
        for name in set(result["names"]) & TDC_SETS.keys():
            value = result["metrics"].get(f"test/{TDC_SETS[name].metric}/{name}")
            if value is not None:
                found[name].append(value)
    rows, won, compared = [], [0, 0], [0, 0]
    for name, (metric, _, *published) in TDC_SETS.items():
        if name not in found:
            continue
        mean = statistics.fmean(found[name])
        spread = f"{statistics.stdev(found[name]):.3f}" if len(found[name]) > 1 else "-"
        rows.append([name, metric_title(metric), str(len(found[name])), f"{mean:.3f}", spread, *map(_shown, published)])
        for place, other in enumerate(published):
            if other is not None:
                compared[place] += 1
                won[place] += mean < other if metric in _FALLING else mean > other
    counts = [f"{better} of {count}" for better, count in zip(won, compared, strict=True)]
    return [*rows, ["better than published", "", "", "", "", *counts]] if rows else []


def show_benchmark(folder: Path, results: Iterable[Mapping[str, Any]]) -> None:
    """Print the table of the benchmark's sets, and write it into a sweep's folder as `tdc.md` and `tdc.csv`; nothing for other data."""
    rows = benchmark_rows(results)
    if not rows:
        return
    write_csv(folder / "tdc.csv", [HEADER, *rows])
    lines = [HEADER, ("---", "---", *["---:"] * (len(HEADER) - 2)), *rows]
    write_text(folder / "tdc.md", "".join(f"| {' | '.join(line)} |\n" for line in lines))
    table = Table(title="TDC's ADMET group, test parts", title_justify="left")
    for name in HEADER:
        table.add_column(name, justify="left" if name in HEADER[:2] else "right")
    for row in rows:
        table.add_row(*row)
    print_table(Console(), table)


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
