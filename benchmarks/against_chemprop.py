"""Chemprop's errors beside ours: `python benchmarks/against_chemprop.py --run FOLDER --data ESOL --chemprop PATH --seeds 0 1 2`.

It trains Chemprop with its defaults on the molecules and in the parts of a run of `networks.py`, and adds its rows to that benchmark's
table.
"""

import argparse
import csv
import json
import math
import resource
import subprocess
from pathlib import Path

import numpy as np

from molgcn.benchmark.networks import KEY
from molgcn.benchmark.results import Row, Table
from molgcn.metrics import errors_of
from molgcn.yaml_file import read_yaml

SPLIT = "split"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, required=True, help="a run's folder, of a CSV file with one target")
    parser.add_argument("--data", required=True, help="the set's name in the table")
    parser.add_argument("--chemprop", default="chemprop", help="the program, which may be in an environment of its own")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument(
        "--output", type=Path, default=Path("benchmarks/results/networks.md"), help="the table is in the CSV file beside it"
    )
    arguments = parser.parse_args()
    version = subprocess.run([arguments.chemprop, "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    table = Table(arguments.output.with_suffix(".csv"), KEY)
    for seed in arguments.seeds:
        key = {"data": arguments.data, "network": f"chemprop {version}", "seed": seed}
        if table.find(**key) is None:
            folder = arguments.run.with_name(f"{arguments.run.name}_chemprop_{seed}")
            row = table.add({**key, **train(arguments.chemprop, arguments.run, folder, seed)})
            print(f"{arguments.data}, chemprop, seed {seed}: {row['test']:.4g}, {row['seconds']} s", flush=True)


def train(program: str, run: Path, folder: Path, seed: int) -> Row:
    """Return the measurements of one run of Chemprop; its seconds are those of the whole command."""
    dataset = read_yaml(run / "config.yaml", dict)["dataset"]
    (target,) = dataset["targets"]
    folder.mkdir(parents=True, exist_ok=True)
    rows = write_parts(dataset, target, json.loads((run / "splits.json").read_text()), folder / "molecules.csv")
    columns = ["--smiles-columns", dataset["smiles"], "--target-columns", target, "--splits-column", SPLIT]
    before = processor_seconds()
    command = [program, "train", "-i", str(folder / "molecules.csv"), *columns, "--accelerator", "cpu", "--pytorch-seed", str(seed)]
    with (folder / "log").open("w") as log:
        subprocess.run([*command, "-o", str(folder)], check=True, stdout=log, stderr=log)
    seconds = processor_seconds() - before
    values = {part: np.array([float(row[target]) for row in rows if row[SPLIT] == part]) for part in ("train", "test")}
    predicted = np.array([float(row[target]) for row in read(folder / "model_0" / "test_predictions.csv")])
    logged = read(next(folder.glob("model_0/trainer_logs/*/metrics.csv")))
    losses = [float(row["val_loss"]) for row in logged if row["val_loss"]]
    return {
        "overrides": "chemprop train",
        "epochs": len(losses),
        "best_epoch": 1 + int(np.argmin(losses)),
        "metric": "rmse",
        "unit": None,
        "validation": math.sqrt(min(losses)) * float(values["train"].std()),  # the loss is of standardised values
        "test": errors_of(predicted[:, None], values["test"][:, None])["rmse"][0],
        "seconds": round(seconds, 1),
    }


def write_parts(dataset: dict[str, str], target: str, splits: dict[str, list[int]], path: Path) -> list[dict[str, str]]:
    """Write the rows that are in a part, with its name beside them, and return them."""
    parts = {row: part for part in ("train", "val", "test") for row in splits[part]}
    source = read(Path(dataset["path"]))
    rows = [{**source[i], SPLIT: parts[i]} for i in sorted(parts)]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [dataset["smiles"], target, SPLIT], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return rows


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main()
