"""Measure errors and training times of networks that are trained on the same molecules, splits, seeds and epochs."""

from __future__ import annotations

import re
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from omegaconf import OmegaConf

from molgcn.config.overrides import compose_config
from molgcn.config.run import Config, parse
from molgcn.data.load import load_molecules
from molgcn.resources import resource
from molgcn.training.restore import load_module
from molgcn.training.result import RunResult
from molgcn.training.train import train
from molgcn_benchmark.results import Row, Table

KEY = ("data", "network", "seed")
QUIET = ["logger=csv", "training.report=false", "trainer.enable_progress_bar=false"]


def networks() -> list[str]:
    """Return an override for each preset of conf/model: the networks of the registry and the published ones."""
    return [f"model={path.stem}" for path in sorted((resource("conf") / "model").glob("*.yaml"))]


def measure(
    sets: Mapping[str, Sequence[str]],
    recipes: Sequence[str],
    seeds: Sequence[int],
    common: Sequence[str],
    metric: str,
    folder: Path,
    table: Table,
) -> Iterator[Row]:
    """Train every recipe on every set from every seed, and yield a row of each run as soon as it is there.

    Args:
        sets: overrides that choose each set, by its name.
        recipes: overrides that choose a network or an experiment, separated by spaces.
        seeds: seeds of the weights and of the order of molecules.
        common: overrides of all runs.
        metric: "mae" or "rmse", averaged over the targets.
        folder: folder in which each run gets its own folder.
        table: table with the key columns :data:`KEY`, to which the rows are added. A run that has a row is not trained again.
    """
    for seed in seeds:
        for data, dataset in sets.items():
            for recipe in recipes:
                row = table.find(data=data, network=recipe, seed=seed)
                if row is None:
                    run = folder / run_name(data, recipe, seed)
                    config = configuration([*QUIET, *recipe.split(), *dataset, *common, f"seed={seed}"])
                    named = {"data": data, "network": recipe, "seed": seed, "overrides": " ".join([*dataset, *common])}
                    row = table.add({**named, **train_one(config, run, metric)})
                yield row


def run_name(data: str, recipe: str, seed: int) -> str:
    """Return the name of the folder of a run."""
    return re.sub(r"[^\w.]+", "_", f"{data} {recipe} {seed}")


def configuration(overrides: Sequence[str]) -> Config:
    """Return the configuration that `python train.py` would run with these overrides."""
    values = OmegaConf.to_container(compose_config(overrides, resource("conf"), "train"), resolve=True)
    assert isinstance(values, dict)
    return parse(Config, {str(key): value for key, value in values.items() if key not in ("paths", "sweep")})


def train_one(config: Config, folder: Path, metric: str) -> Row:
    """Train one run and return its row: errors of the best epoch's weights, and processor seconds without loading the data."""
    load_molecules(config.dataset)  # fills the cache, so that loading is not timed
    start = time.process_time()
    result = train(config, folder)
    seconds = time.process_time() - start
    return {
        "parameters": sum(parameter.numel() for parameter in load_module(folder).model.parameters()),
        "epochs": result.epochs,
        "best_epoch": result.best_epoch,
        "metric": metric,
        "unit": " ".join(sorted(set(result.units))),
        "validation": error(result, "val", metric),
        "test": error(result, "test", metric),
        "seconds": round(seconds, 1),
    }


def error(result: RunResult, part: str, metric: str) -> float:
    """Return the error on one part of the data, averaged over the targets."""
    return statistics.mean(result.metrics[f"{part}/{metric}/{name}"] for name in result.names)


def sheet(rows: Sequence[Row]) -> list[str]:
    """Return a Markdown table with a line for each set and network, and a list of the overrides of each set.

    The networks of a set are sorted by validation error. Where there are several seeds, a cell shows mean and standard deviation.

    Args:
        rows: rows that :func:`measure` yielded.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["data"], row["network"]), []).append(row)
    order = list(dict.fromkeys(row["data"] for row in rows))
    ranked = sorted(groups.items(), key=lambda item: (order.index(item[0][0]), _mean(item[1], "validation")))
    lines = ["| data | network | parameters | epochs | seeds | validation | test | seconds |", "|---|---|---:|---:|---:|---:|---:|---:|"]
    for (data, network), runs in ranked:
        first, size, unit = runs[0], runs[0].get("parameters"), runs[0].get("unit")
        measured = f"{data}, {first['metric'].upper()}" + (f" [{unit}]" if unit else "")
        cells = [measured, f"`{network}`", "" if size is None else f"{size:,}", first["epochs"], len(runs)]
        cells += [_shown(runs, "validation"), _shown(runs, "test"), f"{_mean(runs, 'seconds'):.0f}"]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    given = {(row["data"], row["overrides"]): None for row in rows}
    return [*lines, "", *(f"- {data}: `{overrides}`" for data, overrides in given)]


def _mean(runs: Sequence[Row], column: str) -> float:
    return statistics.mean(run[column] for run in runs)


def _shown(runs: Sequence[Row], column: str) -> str:
    values = [run[column] for run in runs]
    return f"{statistics.mean(values):.3f}" + (f" ± {statistics.stdev(values):.3f}" if len(values) > 1 else "")
