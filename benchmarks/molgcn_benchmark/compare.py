"""Compare both backends on this machine: measure the missing rows, then write tables and plots."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from rich.console import Console

from molgcn.data import PackedMolecules
from molgcn.data.config import DatasetConfig
from molgcn.data.datamodule import load_once
from molgcn.errors import UserError
from molgcn_benchmark import epochs, learning, loaders, published, steps
from molgcn_benchmark.config import BenchmarkConfig
from molgcn_benchmark.machine import machine
from molgcn_benchmark.plots import write_plots
from molgcn_benchmark.report import print_sheets, sheets, write_report
from molgcn_benchmark.results import Results, Row, Table

log = logging.getLogger(__name__)
PARTS = {"steps": steps, "published": published, "loaders": loaders, "epochs": epochs, "learning": learning}


def compare(config: BenchmarkConfig, console: Console | None = None) -> Results:
    """Measure the parts that `config` names, print the tables and write everything into `config.output`.

    The folder gets a CSV file for each part, `results.json` (machine, versions, all rows), `report.md` and plots. Each row is written as
    soon as it is measured. Rows of earlier calls are not measured again; tables and plots show them too.

    Raises:
        UserError: for a mistake in the configuration or its data, a folder with measurements of another machine, or a candidate whose
            results are wrong.
    """
    console = console or Console()
    facts = machine(config.torch_device)
    results = Results(_folder(config.output), facts)
    tables = {name: results.table(name, part.KEY) for name, part in PARTS.items()}  # rows of earlier calls are shown too
    results.save()
    dataset = load_once(config.dataset)
    if config.dataset.name == "builtin":
        log.info(
            "Measured on the %s built-in molecules, as no other data set is named. dataset=qm9 or dataset=zinc takes the study's "
            "(downloaded, or read from dataset.path); rows of several data sets stand side by side in one output folder.",
            f"{len(dataset.molecules):,}",
        )
    calls = measurements(config, dataset.molecules, tables, peak=float(facts.get("fma_peak_gflops", 0)))
    for part in config.parts:
        for row in calls[part]():
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


def data_label(dataset: DatasetConfig) -> str:
    """Return a name for the molecules, which tells data sets apart in one folder."""
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


def measurements(
    config: BenchmarkConfig, molecules: PackedMolecules, tables: Mapping[str, Table], peak: float
) -> dict[str, partial[Iterator[Row]]]:
    """Return for each part the call that measures it, with its arguments bound; nothing is measured before the call is made.

    Args:
        config: configuration of the comparison.
        molecules: the molecules to measure with.
        tables: table of each part, to which the rows are added.
        peak: peak GFLOP/s of the machine; 0 if unknown.
    """
    label, grid = data_label(config.dataset), _grid(config)
    options, learns = asdict(config.epochs), config.learning
    sizes = product(options.pop("num_layers"), options.pop("batch_sizes"))
    variants, pairs = [training_values(config, *size) for size in sizes], [("fused", "packed"), ("pyg", "pyg")]
    learner = training_values(config, learns.num_layers, learns.batch_size) | {"optimizer": {"lr": learns.lr}}
    return {
        "steps": partial(steps.measure, molecules, label, grid, tables["steps"], peak),
        "published": partial(published.measure, molecules, label, grid, tables["published"], **asdict(config.published)),
        "loaders": partial(loaders.measure, molecules, label, config.torch_device, tables["loaders"], **asdict(config.loaders)),
        "epochs": partial(epochs.measure, variants, pairs, label, tables["epochs"], **options),
        "learning": partial(
            learning.measure, learner, label, tables["learning"], learns.epochs, learns.seeds, workers=config.epochs.workers
        ),
    }


def training_values(config: BenchmarkConfig, num_layers: int, batch_size: int) -> dict[str, Any]:
    """Return the configuration keys of a training run of this size, with the network that `steps` measures."""
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
    """Return a line of text for a row that was just measured."""
    shown = ("work", "backend", "loader", "num_layers", "batch_size", "seed", "microseconds", "epoch_ms", "val_mae", "seconds")
    facts = [f"{name}={row[name]}" for name in shown if row.get(name) is not None]
    times = [f"{name[:-3]} {row[name]:.3g} ms" for name in row if name.endswith("_ms") and part in ("steps", "published")]
    return f"{part}: {' '.join(facts)} {', '.join(times)}".rstrip()
