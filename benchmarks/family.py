"""Compare networks with the different layers with PyG's: `python benchmarks/family.py --device cuda --packed FOLDER`."""

import argparse
import sys
from itertools import product
from pathlib import Path

import torch

from molgcn.data import PackedMolecules
from molgcn.errors import UserError
from molgcn_benchmark.family import CANDIDATES, KEY, NETWORKS, WORKS, measure, sheet
from molgcn_benchmark.machine import machine
from molgcn_benchmark.results import Table, check_machine, write_markdown


def read(arguments: argparse.Namespace) -> PackedMolecules:
    if arguments.packed:
        return PackedMolecules.load(arguments.packed)
    if arguments.smiles:
        lines = [line.split(",")[0] for line in arguments.smiles.read_text().splitlines()[1:]]
        return PackedMolecules.from_smiles(lines[: 2 * max(arguments.batch_sizes)], features="zinc", on_error="skip")
    from molgcn.data.config import DatasetConfig
    from molgcn.data.load import load_molecules

    return load_molecules(DatasetConfig())[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument(
        "--smiles", type=Path, help="a CSV file whose first column holds SMILES, below a header (default: built-in molecules)"
    )
    parser.add_argument("--packed", type=Path, help="a folder that PackedMolecules.save wrote, instead of --smiles")
    parser.add_argument("--networks", nargs="+", choices=tuple(NETWORKS), default=list(NETWORKS), metavar="NAME")
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[32, 128, 4096])
    parser.add_argument("--works", nargs="+", choices=WORKS, default=["forward_backward", "step"])
    parser.add_argument("--candidates", nargs="+", choices=CANDIDATES)
    parser.add_argument("--precision", choices=("highest", "high"), default="highest", help="float32 matmul precision of all candidates")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument(
        "--output", type=Path, help="rows that it has in full are not measured again (default: benchmarks/results/family_DEVICE.csv)"
    )
    arguments = parser.parse_args()
    device = arguments.device
    candidates = tuple(arguments.candidates or (name for name in CANDIDATES if device == "cuda" or name in ("fused", "pyg")))
    output = arguments.output or Path(f"benchmarks/results/family_{device}.csv")
    report, facts = output.with_suffix(".md"), machine(torch.device(device))
    try:
        check_machine(report, facts, str(output), "Give another file with --output.")
        table = Table(output, KEY)
        every = product(arguments.networks, arguments.batch_sizes, arguments.works)
        keys = [dict(zip(KEY, (name, device, work, size, arguments.precision), strict=True)) for name, size, work in every]
        for row in measure(read(arguments), keys, candidates, arguments.repeats, table):
            print(", ".join(f"{name} {value}" for name, value in row.items()), flush=True)
            write_markdown(report, "The family beside PyG", facts, sheet(table.rows))
    except UserError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
