"""Compare loops of one's own, plain and captured, with PyG's and the Trainer's step: `python benchmarks/own_loops.py --csv FILE TARGET`."""

import argparse
import sys
from itertools import product
from pathlib import Path

import torch

from molgcn.errors import UserError
from molgcn_benchmark.family import KEY, NETWORKS, WORKS
from molgcn_benchmark.machine import machine
from molgcn_benchmark.own_loops import CANDIDATES, DEFAULT, measure, sheet
from molgcn_benchmark.results import Table, write_markdown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--csv", nargs=2, metavar=("FILE", "TARGET"), help="a CSV file with a column `smiles` (default: built-in molecules)"
    )
    parser.add_argument("--networks", nargs="+", choices=tuple(NETWORKS), default=list(DEFAULT), metavar="NAME")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[32, 128, 4096])
    parser.add_argument("--works", nargs="+", choices=WORKS, default=list(WORKS))
    parser.add_argument("--candidates", nargs="+", choices=CANDIDATES, default=list(CANDIDATES))
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument(
        "--output", type=Path, help="rows that it has are not measured again (default: benchmarks/results/own_loops_DEVICE.csv)"
    )
    arguments = parser.parse_args()
    dataset = {"name": "builtin", "targets": ["logp"], "features": "zinc"}
    if arguments.csv:
        dataset |= {"name": "csv", "path": arguments.csv[0], "smiles": "smiles", "targets": [arguments.csv[1]]}
    output = arguments.output or Path(f"benchmarks/results/own_loops_{arguments.device}.csv")
    every = product(arguments.networks, arguments.batch_sizes, arguments.works)
    keys = [dict(zip(KEY, (name, arguments.device, work, size, "highest"), strict=True)) for name, size, work in every]
    table = Table(output, KEY)
    try:
        for row in measure(keys, arguments.candidates, dataset, arguments.repeats, table):
            print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)
            write_markdown(output.with_suffix(".md"), "Loops of one's own", machine(torch.device(arguments.device)), sheet(table.rows))
    except UserError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
