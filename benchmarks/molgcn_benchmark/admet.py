"""Measure the recipe of `dataset=csv` by cross-validation inside the training parts of TDC's ADMET group."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from molgcn.data.benchmark_sets import TDC_SETS
from molgcn.data.load import load_molecules
from molgcn.files.json_file import read_json
from molgcn.metrics.comparison import NETWORK, TREES
from molgcn.replicates.run import train_all
from molgcn_benchmark.networks import QUIET, configuration
from molgcn_benchmark.results import Row, Table

KEY = ("set", "overrides")
SCAFFOLDS = ["dataset.split=cv", "dataset.cv_by=scaffold", "dataset.smiles=Drug", "dataset.targets=[Y]", "training.bootstrap=0"]
COLUMNS = {"blend": "", "network": NETWORK, "trees": TREES}


def measure(data: Path, sets: Sequence[str], overrides: Sequence[str], folder: Path, table: Table) -> Iterator[Row]:
    """Train on every fold of every set, and yield a row of each set as soon as it is there.

    Args:
        data: the folder with `<set>_train_val.csv` of each set.
        sets: names of sets.
        overrides: overrides of all runs.
        folder: the folder in which each set gets its own folder.
        table: table with the key columns :data:`KEY`, to which the rows are added. A set that has a row is not trained again.
    """
    for name in sets:
        row = table.find(set=name, overrides=" ".join(overrides))
        if row is None:
            path = f"dataset.path={data / f'{name}_train_val.csv'}"
            cache = f"dataset.cache_dir={folder / 'cache'}"
            config = configuration([*QUIET, "dataset=csv", path, cache, *SCAFFOLDS, *overrides])
            start = sum(os.times()[:4])  # of this process and of workers that have ended
            load_molecules(config.dataset)
            loaded = sum(os.times()[:4])
            train_all(config, folder / name)
            seconds = {"load_seconds": round(loaded - start, 1), "seconds": round(sum(os.times()[:4]) - loaded, 1)}
            row = table.add({"set": name, "overrides": " ".join(overrides), **errors(folder / name, TDC_SETS[name].metric), **seconds})
        yield row


def errors(run: Path, metric: str) -> Row:
    """Return mean and standard deviation of the benchmark's metric over the folds, of the blend and of its parts."""
    results = [read_json(run / member / "result.json") for member in read_json(run / "members.json")]
    row: Row = {"metric": metric}
    for column, part in COLUMNS.items():
        found = [(result["baselines"][part] if part else result["metrics"])[f"test/{metric}/Y"] for result in results]
        row |= {column: round(statistics.mean(found), 4), f"{column}_std": round(statistics.stdev(found), 4)}
    return row


def gpu_seconds(path: Path) -> dict[str, tuple[float, float]]:
    """Return of each set in a table of folds that a GPU trained the seconds of its features and the mean of those of a fold's trainings."""
    seconds: dict[str, list[tuple[float, float]]] = {}
    for row in Table(path, ("set", "fold")).rows:
        seconds.setdefault(row["set"], []).append((row["load_seconds"], row["seconds"]))
    return {name: (found[0][0], statistics.mean(one[1] for one in found)) for name, found in seconds.items()}


def sheet(rows: Sequence[Row], gpu: Mapping[str, tuple[float, float]]) -> list[str]:
    """Return a Markdown table with a line for each row that :func:`measure` yielded, and beside it what :func:`gpu_seconds` returned."""
    lines = ["| set | metric | network | trees | both | CPU, s | GPU, s |", "|---|---|---:|---:|---:|---:|---:|"]
    for row in rows:
        cells = [f"{row[name]:.4g} ± {row[f'{name}_std']:.2g}" for name in ("network", "trees", "blend")]
        times = [(row["load_seconds"], row["seconds"]), gpu.get(row["set"])]
        cells += [f"{pair[0]:.0f} + {pair[1]:.0f}" if pair else "-" for pair in times]
        lines.append("| " + " | ".join([row["set"], row["metric"], *cells]) + " |")
    return lines
