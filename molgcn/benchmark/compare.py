"""The comparison of both backends on this machine: measures what is not there yet, then writes tables and plots."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console

from molgcn.benchmark import epochs, learning, loaders, published, steps
from molgcn.benchmark.config import BenchmarkConfig
from molgcn.benchmark.machine import machine
from molgcn.benchmark.plots import write_plots
from molgcn.benchmark.report import print_sheets, sheets, write_report
from molgcn.benchmark.results import Results, Row
from molgcn.data import PackedMolecules
from molgcn.data.datamodule import load_once
from molgcn.errors import UserError

log = logging.getLogger(__name__)


def compare(config: BenchmarkConfig, console: Console | None = None) -> Results:
    """Measures the parts that `config` names, prints the tables and writes everything into `config.output`.

    The folder gets a CSV file a part, `results.json` (machine, versions, all rows), `report.md` and plots. Each row is written when it is
    measured; rows that are there are not measured again, and tables and plots show them too.

    Raises:
        UserError: for a mistake in the configuration or its data, a folder with measurements of another machine, or a candidate whose
            numbers are wrong.
    """
    console = console or Console()
    facts = machine(config.torch_device)
    results = Results(_folder(config.output), facts)
    for name, measured in _TABLES.items():  # what earlier calls measured is shown too
        results.table(name, measured.KEY)
    results.save()
    dataset = load_once(config.dataset)
    if config.dataset.name == "builtin":
        log.info(
            "Measured on the %s built-in molecules, as no other data set is named. dataset=qm9 or dataset=zinc takes the study's "
            "(downloaded, or read from dataset.path); rows of several data sets stand side by side in one output folder.",
            f"{len(dataset.molecules):,}",
        )
    label = _label(config)
    for part in config.parts:
        for row in _PARTS[part](config, dataset.molecules, label, results, float(facts.get("fma_peak_gflops", 0))):
            results.save()
            console.print(_line(part, row), highlight=False, markup=False, soft_wrap=True)
    results.save()
    found = sheets(results)
    print_sheets(found, console)
    plots = write_plots(results)
    write_report(results, found, plots)
    console.print(f"Tables and plots are in {results.folder}", highlight=False, markup=False, soft_wrap=True)
    return results


def _folder(output: str) -> Path:
    folder = Path(output).expanduser()
    if folder.exists() and not folder.is_dir():
        raise UserError(f"output={output} is a file. Give a folder, for example output=benchmark.")
    return folder


def _label(config: BenchmarkConfig) -> str:
    """A name for the molecules that tells data sets apart in one folder."""
    dataset = config.dataset
    stem = "" if dataset.path is None else Path(dataset.path).name.split(".")[0]
    name = dataset.name if stem.startswith(dataset.name) or not stem else stem if dataset.name == "csv" else f"{dataset.name}:{stem}"
    return name if dataset.subset is None else f"{name}[{dataset.subset}]"


def _grid(config: BenchmarkConfig) -> steps.Grid:
    return steps.Grid(
        config.torch_device.type,
        config.num_layers,
        config.batch_sizes,
        config.hidden_channels,
        config.norm,
        config.candidates,
        config.steps.works,
        config.steps.repeats,
        config.steps.warm_up,
    )


def _steps(config: BenchmarkConfig, molecules: PackedMolecules, label: str, results: Results, peak: float) -> Iterator[Row]:
    return steps.measure(molecules, label, _grid(config), results.table("steps", steps.KEY), peak)


def _published(config: BenchmarkConfig, molecules: PackedMolecules, label: str, results: Results, peak: float) -> Iterator[Row]:
    table = results.table("published", published.KEY)
    return published.measure(molecules, label, _grid(config), table, **asdict(config.published))


def _loaders(config: BenchmarkConfig, molecules: PackedMolecules, label: str, results: Results, peak: float) -> Iterator[Row]:
    table = results.table("loaders", loaders.KEY)
    return loaders.measure(molecules, label, config.torch_device, table, **asdict(config.loaders))


def _epochs(config: BenchmarkConfig, molecules: PackedMolecules, label: str, results: Results, peak: float) -> Iterator[Row]:
    options = asdict(config.epochs)
    sizes = product(options.pop("num_layers"), options.pop("batch_sizes"))
    variants = [training_values(config, *size) for size in sizes]
    pairs = [("fused", "packed"), ("pyg", "pyg")]
    return epochs.measure(variants, pairs, label, results.table("epochs", epochs.KEY), **options)


def _learning(config: BenchmarkConfig, molecules: PackedMolecules, label: str, results: Results, peak: float) -> Iterator[Row]:
    chosen = config.learning
    values = training_values(config, chosen.num_layers, chosen.batch_size) | {"optimizer": {"lr": chosen.lr}}
    table = results.table("learning", learning.KEY)
    return learning.measure(values, label, table, chosen.epochs, chosen.seeds, config.epochs.workers)


_TABLES = {"steps": steps, "published": published, "loaders": loaders, "epochs": epochs, "learning": learning}
_PARTS = {"steps": _steps, "published": _published, "loaders": _loaders, "epochs": _epochs, "learning": _learning}


def training_values(config: BenchmarkConfig, num_layers: int, batch_size: int) -> dict[str, Any]:
    """The keys of a training run of this size: the same network as `steps` measures."""
    return {
        "dataset": {**asdict(config.dataset), "batch_size": batch_size},
        "model": {
            "hidden_channels": config.hidden_channels,
            "num_layers": num_layers,
            "norm": config.norm,
            "residual": False,
            "last_activation": False,
            "head_layers": 0,
        },
        "scheduler": {"name": "constant"},
        "trainer": {"accelerator": "cpu" if config.torch_device.type == "cpu" else "gpu", "devices": 1},
    }


def _line(part: str, row: Row) -> str:
    """One line for a row that was just measured."""
    shown = ("work", "backend", "loader", "num_layers", "batch_size", "seed", "microseconds", "epoch_ms", "val_mae", "seconds")
    facts = [f"{name}={row[name]}" for name in shown if row.get(name) is not None]
    times = [f"{name[:-3]} {row[name]:.3g} ms" for name in row if name.endswith("_ms") and part in ("steps", "published")]
    return f"{part}: {' '.join(facts)} {', '.join(times)}".rstrip()
