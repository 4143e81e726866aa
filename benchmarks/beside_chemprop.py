"""Compare with Chemprop on MoleculeNet: `python benchmarks/beside_chemprop.py --data FOLDER --chemprop PYTHON --recipe "model=gine"`.

Both programs train on the same molecules and splits, from the same seeds. Chemprop has its defaults. For each seed this project draws the
split once. Runs follow each other, or with `--workers N` go side by side. Rows that are in the table are not measured again.
"""

import argparse
import csv
import hashlib
import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

import numpy as np
import torch

from molgcn.metrics import errors_of
from molgcn.metrics.classes import class_metrics
from molgcn_benchmark.machine import machine
from molgcn_benchmark.paired import KEY, mean_standardised_difference, sheet
from molgcn_benchmark.results import Row, Table, write_markdown

TIMED = Path(__file__).with_name("timed_fit.py")
REGRESSION = ("esol", "freesolv", "lipophilicity")
TARGETS = {"bace": ["Class"]}  # targets of files that also have columns that are not to be learnt
SETS = ("tox21", "lipophilicity", "bbbp", "bace", "clintox", "sider", "esol", "freesolv")  # the largest first, so that workers end together
PART = "split"

ABOUT = """\
Both train on the same molecules and in the same parts, from the same seeds; Chemprop with its defaults, this project
with `dataset=csv` and the words over its column. ROC-AUC is the mean over the targets, RMSE is in the file's units.
"Better by" is the mean of the paired differences, beside it that mean in its own standard errors. Seconds are medians:
of the training alone, on the clock or with `--time processor` on processors, which other work on the machine changes
little, or of an epoch after the first, with its validation; and of the rest of the command on the clock (imports,
features, evaluation). The mean standardised difference is that over the sets and splits of "better by" in standard
deviations of the paired differences."""


def main() -> None:
    times = {"clock": "fit_seconds", "processor": "fit_processor_seconds", "epoch": "epoch_seconds", "none": None}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of MoleculeNet's CSV files, named as the sets")
    parser.add_argument("--chemprop", default=sys.executable, help="a Python with chemprop, which may be in an environment of its own")
    parser.add_argument("--recipe", default="", help="overrides of this project, as 'model=gine trainer.max_epochs=50'")
    parser.add_argument("--sets", nargs="*", default=SETS, choices=SETS)
    parser.add_argument("--splits", nargs="*", default=["random", "scaffold"])
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2, 3, 4])
    parser.add_argument("--only", choices=("molgcn", "chemprop"), help="run one program; chemprop takes the splits of molgcn's runs")
    parser.add_argument("--workers", type=int, default=1, help="runs side by side, whose times then depend on each other")
    parser.add_argument("--accelerator", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument("--folder", type=Path, default=Path("runs/chemprop"), help="where the runs are")
    parser.add_argument("--output", type=Path, default=Path("benchmarks/results/chemprop_cpu.md"), help="a CSV file beside it has the rows")
    parser.add_argument("--epochs", type=int, help="epochs of both programs, where only their time is asked for (default: each its own)")
    parser.add_argument("--time", choices=tuple(times), default="clock", help="the seconds that the table shows")
    arguments = parser.parse_args()
    seconds = times[arguments.time]
    ask = "from importlib.metadata import version; print(version('chemprop'))"
    theirs = f"chemprop {subprocess.run([arguments.chemprop, '-c', ask], capture_output=True, text=True, check=True).stdout.strip()}"
    ours = f"molgcn {arguments.recipe}".strip()
    recipe = [*arguments.recipe.split(), *([f"trainer.max_epochs={arguments.epochs}"] if arguments.epochs else [])]
    table = Table(arguments.output.with_suffix(".csv"), KEY)
    lock = Lock()

    def measure(data: str, seed: int, split: str) -> None:
        source, run = arguments.data / f"{data}.csv", arguments.folder / f"{data}_{split}_{seed}"
        key = {"data": data, "split": split, "seed": seed}
        own, other = run / ours.replace(" ", "_").replace("/", "_"), run / "chemprop"
        if arguments.only != "chemprop" and table.find(**key, program=ours) is None:
            add(key | {"program": ours} | train_ours(source, data, split, seed, recipe, arguments.accelerator, own))
        if arguments.only != "molgcn" and table.find(**key, program=theirs) is None:
            add(key | {"program": theirs} | train_theirs(source, data, seed, arguments, own / "splits.json", other))

    def add(row: Row) -> None:
        with lock:
            table.add(row)
            write(arguments.output, table, ours, theirs, seconds)
        print(f"{row['data']}, {row['split']}, {row['seed']}, {row['program']}: {row['metric']} {row['test']:.3f}", flush=True)

    write(arguments.output, table, ours, theirs, seconds)  # again, where the table has all rows already
    with ThreadPoolExecutor(arguments.workers) as pool:
        runs = [pool.submit(measure, *job) for job in itertools.product(arguments.sets, arguments.seeds, arguments.splits)]
    for run in runs:
        run.result()  # the first failure, after all other runs


def train_ours(source: Path, data: str, split: str, seed: int, recipe: list[str], accelerator: str, run: Path) -> Row:
    """Run `python train.py` once, and return its measurements."""
    words = [*recipe, "dataset=csv", f"dataset.path={source.resolve()}", f"dataset.targets=[{','.join(targets_of(source, data))}]"]
    words += [
        "dataset.on_error=skip",
        f"dataset.split={split}",
        f"dataset.split_seed={seed}",
        f"seed={seed}",
        f"dataset.cache_dir={run}_cache",
    ]
    words += [f"trainer.accelerator={accelerator}", "logger=csv", f"hydra.run.dir={run}"]
    times = timed(sys.executable, "molgcn.cli:main", words, run.with_suffix(".times.json"))
    result = json.loads((run / "result.json").read_text())["metrics"]
    metric = "rmse" if data in REGRESSION else "roc_auc"
    found = {part: [result[f"{part}/{metric}/{name}"] for name in targets_of(source, data)] for part in ("val", "test")}
    return score(metric, found["val"], found["test"]) | {"splits": digest(run / "splits.json")} | times


def train_theirs(source: Path, data: str, seed: int, arguments: argparse.Namespace, splits: Path, folder: Path) -> Row:
    """Run Chemprop once, and return its measurements."""
    folder.mkdir(parents=True, exist_ok=True)
    targets = targets_of(source, data)
    rows = write_parts(source, targets, json.loads(splits.read_text()), folder / "molecules.csv")
    words = ["train", "-i", str(folder / "molecules.csv"), "--smiles-columns", "smiles", "--target-columns", *targets]
    words += ["--splits-column", PART, "--accelerator", arguments.accelerator, "--pytorch-seed", str(seed), "-o", str(folder)]
    words += [] if data in REGRESSION else ["--task-type", "classification"]
    words += ["--epochs", str(arguments.epochs)] if arguments.epochs else []
    times = timed(arguments.chemprop, "chemprop.cli.main:main", words, folder / "times.json")
    true = numbers([row for row in rows if row[PART] == "test"], targets)
    given = numbers(read(folder / "model_0" / "test_predictions.csv"), targets)
    if data in REGRESSION:
        scores = score("rmse", [], errors_of(given, true)["rmse"])
    else:
        scores = score("roc_auc", [], [class_metrics(*pair)["roc_auc"] for pair in zip(true.T, given.T, strict=True)])
    return scores | {"splits": digest(splits)} | times


def timed(python: str, entry: str, words: list[str], output: Path) -> Row:
    """Run a command that trains, and return the seconds of its training and of the rest."""
    output.parent.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    with output.with_suffix(".log").open("w") as log:
        subprocess.run(
            [python, str(TIMED), str(output), entry, *words],
            check=True,
            stdout=log,
            stderr=log,
            env={**os.environ, "WANDB_MODE": "disabled"},
        )
    fit = json.loads(output.read_text())
    rest = time.perf_counter() - start - fit["seconds"]
    later = fit["epoch_seconds"][1:]
    return {
        "fit_seconds": round(fit["seconds"], 2),
        "fit_processor_seconds": round(fit["processor_seconds"], 2),
        "epoch_seconds": round(statistics.median(later), 4) if later else None,
        "other_seconds": round(rest, 2),
    }


def score(metric: str, validation: list[float], test: list[float]) -> Row:
    """Return the row's scores: the means over the targets for which the metric is defined."""
    # in result.json an undefined value is null
    val, of_test = (float(np.nanmean(np.array(values, float))) if len(values) else math.nan for values in (validation, test))
    return {"metric": metric, "rising": int(metric != "rmse"), "validation": val, "test": of_test}


def digest(path: Path) -> str:
    """Return a short hash of a file, by which rows show that they have the same splits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def targets_of(source: Path, data: str) -> list[str]:
    """Return the columns to learn."""
    with source.open(newline="") as file:
        header = next(csv.reader(file))
    return TARGETS.get(data, [name for name in header if name != "smiles"])


def write_parts(source: Path, targets: list[str], splits: dict[str, list[int]], path: Path) -> list[dict[str, str]]:
    """Write the rows that belong to a part, with a column that names the part, and return them."""
    parts = {row: part for part in ("train", "val", "test") for row in splits[part]}
    rows = [{**row, PART: parts[place]} for place, row in enumerate(read(source)) if place in parts]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, ["smiles", *targets, PART], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return rows


def numbers(rows: list[dict[str, str]], columns: list[str]) -> np.ndarray:
    """Return float64 [rows, columns], NaN where a cell is empty."""
    return np.array([[float(row[name]) if row[name] else math.nan for name in columns] for row in rows])


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def write(path: Path, table: Table, ours: str, theirs: str, seconds: str | None) -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    lines = [ABOUT, "", *sheet(table.rows, ours, theirs, seconds)]
    if not math.isnan(mean := mean_standardised_difference(table.rows, ours, theirs)):
        lines += ["", f"Mean standardised difference: {mean:+.2f}."]
    write_markdown(path, "Chemprop beside this project", machine(device), lines)


if __name__ == "__main__":
    main()
